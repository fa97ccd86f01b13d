// Dropout of attention: edges are dropped head by head.
#pragma once

#include "attention.h"
#include "philox.h"

namespace dorylus::DORYLUS_ISA {

// The mask of a row's edges. The row is the destination in the forward pass, the source in the backward pass; the mask
// is the same, because its counter is (destination, source).
struct EdgeMask {
  const DropStream& stream;
  Lanes own;              // the row's id
  const uint32_t* other;  // the ids of the batch's columns, in the order of lanes
  bool backward;

  DORYLUS_INLINE Words words(int64_t first, int64_t group) const {
    const Lanes ids = __builtin_convertvector(load_as<U32<kCounters>>(other + first), Lanes);
    const uint32_t third = 0x80000000u | (stream.layer << 8) | uint32_t(group);
    return backward ? draw(stream, ids, own, third) : draw(stream, own, ids, third);
  }
  template <int W> DORYLUS_INLINE F32<W> factor(U32<W> word) const {
    return word >= stream.threshold ? splat<W>(stream.scale) : F32<W>{};
  }
};

template <int W> DORYLUS_INLINE void multiply(float* to, F32<W> factor) { store(to, load<W>(to) * factor); }

// One head: a counter serves one edge.
DORYLUS_INLINE void drop_one_head(const EdgeMask& mask, int64_t count, const AttentionScratch& t) {
  for (int64_t k = 0; k < count; k += kCounters) {
    const F32<kCounters> factor =
        mask.factor<kCounters>(__builtin_convertvector(mask.words(k, 0).w[0], U32<kCounters>));
    multiply<kCounters>(t.weights.data() + k, factor);
    multiply<kCounters>(t.positive.data() + k, factor);
  }
}

// Several heads: a counter serves four of them. The words come out as [edge][4 heads], four heads of kLanes / 4 edges a
// vector.
DORYLUS_INLINE void drop_heads(const EdgeMask& mask, int64_t count, int64_t heads, const AttentionScratch& t) {
  for (int64_t k = 0; k < count; k += kCounters)
    for (int64_t head = 0; head < heads; head += 4) {
      const ColumnWords words = in_column_order(mask.words(k, head / 4));
      alignas(64) float factor[2 * kLanes];
      store(factor, mask.factor<kLanes>(words.half[0]));
      store(factor + kLanes, mask.factor<kLanes>(words.half[1]));
      const int64_t used = least(4, heads - head);
      for (int64_t i = 0; i < least(kCounters, count - k); ++i) {
        const int64_t at = (k + i) * heads + head;
        if (used == 4) {
          multiply<4>(t.weights.data() + at, load<4>(factor + 4 * i));
          multiply<4>(t.positive.data() + at, load<4>(factor + 4 * i));
          continue;
        }
        for (int64_t h = 0; h < used; ++h)
          t.weights[at + h] *= factor[4 * i + h], t.positive[at + h] *= factor[4 * i + h];
      }
    }
}

// Weights of dropped edges become 0, the others grow by 1 / (1 - p).
template <bool Backward, class Column>
[[gnu::noinline]] void drop_weights(const DropStream& stream, const int32_t* ids, int64_t row, Column column,
                                    int64_t first, int64_t count, int64_t heads, const AttentionScratch& t) {
  alignas(64) uint32_t other[kBatch + kCounters] = {};
  for (int64_t k = 0; k < count; ++k) {
    const int64_t edge = k % kCounters, lane = heads == 1 ? edge : lane_of_group(edge);
    other[k - edge + lane] = uint32_t(ids[column(first + k)]);
  }
  const EdgeMask mask{stream, Lanes{} + uint64_t(uint32_t(ids[row])), other, Backward};
  if (heads == 1) drop_one_head(mask, count, t);
  else drop_heads(mask, count, heads, t);
}

}  // namespace dorylus::DORYLUS_ISA
