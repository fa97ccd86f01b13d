// Vectors of any power-of-two width, by GCC's vector extensions: one source, compiled once per instruction set.
// Included only from files that are compiled several times; everything sits in the namespace of that compilation.
#pragma once

#include "types.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#define DORYLUS_ISA avx512
#elif defined(__AVX2__)
#include <immintrin.h>
#define DORYLUS_ISA avx2
#elif defined(__aarch64__)
#include <arm_neon.h>
#define DORYLUS_ISA neon
#else
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#define DORYLUS_ISA baseline
#endif

namespace dorylus::DORYLUS_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
constexpr int kRegisters = 8;  // accumulators that stay in registers beside operands, on every instruction set

template <class T, int W> struct VecOf {
  typedef T type __attribute__((vector_size(W * sizeof(T))));
};
template <int W> using F32 = typename VecOf<float, W>::type;
template <int W> using I32 = typename VecOf<int32_t, W>::type;
template <int W> using U32 = typename VecOf<uint32_t, W>::type;
template <int W> using U16 = typename VecOf<uint16_t, W>::type;
template <int W> using U64 = typename VecOf<uint64_t, W>::type;

template <class V> DORYLUS_INLINE V load_as(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class V> DORYLUS_INLINE void store(void* to, V v) { __builtin_memcpy(to, &v, sizeof v); }

// Reads W elements as float32; bfloat16 is the upper half of a float32.
template <int W> DORYLUS_INLINE F32<W> load(const float* from) { return load_as<F32<W>>(from); }
template <int W> DORYLUS_INLINE F32<W> load(const uint16_t* from) {
  return (F32<W>)(__builtin_convertvector(load_as<U16<W>>(from), U32<W>) << 16);
}

template <int W> DORYLUS_INLINE F32<W> splat(float value) { return value - F32<W>{}; }

// Nearest bfloat16, ties to even; a NaN stays a (quiet) NaN.
template <int W> DORYLUS_INLINE U16<W> round_bf16(F32<W> x) {
  U32<W> bits = (U32<W>)x;
  U32<W> rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  U32<W> quiet = (bits >> 16) | 0x40u;
  return __builtin_convertvector((x == x) ? rounded : quiet, U16<W>);
}
template <int W> DORYLUS_INLINE void store_as(float* to, F32<W> v) { store(to, v); }
template <int W> DORYLUS_INLINE void store_as(uint16_t* to, F32<W> v) { store(to, round_bf16<W>(v)); }

DORYLUS_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
DORYLUS_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace dorylus::DORYLUS_ISA
