// Philox4x32-10, the counter-based generator of Random123, on several counters at once: one per 64-bit lane.
#pragma once

#include "vec.h"

namespace dorylus::DORYLUS_ISA {

constexpr int kCounters = kLanes / 2;
using Lanes = U64<kCounters>;

// The four words of every counter: the lower half of each lane. The upper halves are undefined and never read.
struct Words {
  Lanes w[4];
};

// The product of the lower halves.
DORYLUS_INLINE Lanes multiply(Lanes a, uint32_t factor) {
#if defined(__AVX512F__)
  return (Lanes)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(factor));
#elif defined(__AVX2__)
  return (Lanes)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(factor));
#elif defined(__SSE2__)
  return (Lanes)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(factor));
#elif defined(__aarch64__)
  return (Lanes)vmull_u32(vmovn_u64((uint64x2_t)a), vdup_n_u32(factor));
#else
  return (a & 0xffffffffull) * uint64_t(factor);
#endif
}

DORYLUS_INLINE Words philox(Lanes c0, Lanes c1, Lanes c2, Lanes c3, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const Lanes p0 = multiply(c0, 0xD2511F53u), p1 = multiply(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ uint64_t(key0);
    c2 = (p0 >> 32) ^ c3 ^ uint64_t(key1);
    c1 = p1;
    c3 = p0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The words of all lanes in the order of columns, four columns a counter, as two vectors.
struct ColumnWords {
  U32<kLanes> half[2];
};

// Lane 2b serves group b of four columns of the first vector, lane 2b + 1 group b of the second: interleaving the words
// of neighbouring lanes, which stays inside 128 bits, then yields columns in order.
DORYLUS_INLINE int64_t lane_of_group(int64_t group) {
  constexpr int64_t kHalf = kCounters / 2;
  return group < kHalf ? 2 * group : 2 * (group - kHalf) + 1;
}

DORYLUS_INLINE Lanes groups_of_lanes() {
  Lanes groups;
  for (int group = 0; group < kCounters; ++group) groups[lane_of_group(group)] = uint64_t(group);
  return groups;
}

DORYLUS_INLINE ColumnWords in_column_order(const Words& words) {
  const Lanes w01 = (words.w[0] & 0xffffffffull) | (words.w[1] << 32);
  const Lanes w23 = (words.w[2] & 0xffffffffull) | (words.w[3] << 32);
  Lanes even, odd;
  for (int lane = 0; lane < kCounters; ++lane) {
    even[lane] = uint64_t((lane / 2) * 2 + (lane % 2) * kCounters);
    odd[lane] = even[lane] + 1;
  }
  return {{(U32<kLanes>)__builtin_shuffle(w01, w23, even), (U32<kLanes>)__builtin_shuffle(w01, w23, odd)}};
}

// The words of a stream at counter (first, second, third, seed >> 32), keyed by (seed & 0xffffffff, epoch).
DORYLUS_INLINE Words draw(const DropStream& s, Lanes first, Lanes second, uint32_t third) {
  const Lanes zero = {};
  return philox(first, second, zero + uint64_t(third), zero + (s.seed >> 32), uint32_t(s.seed), s.epoch);
}

}  // namespace dorylus::DORYLUS_ISA
