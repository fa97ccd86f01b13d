// The weighted sum of rows under several heads: column c of a row is weighted by its head's weight, head = c / (width /
// heads).
#pragma once

#include "edges.h"
#include "scratch.h"

namespace dorylus::DORYLUS_ISA {

// Which head each column belongs to, and whether a vector of columns ever spans two.
struct Heads {
  Heads(int64_t num_heads, int64_t width) : count(num_heads), columns(width / num_heads), of_column(width) {
    for (int64_t c = 0; c < width; ++c) of_column[c] = int32_t(c / columns);
  }
  bool uniform() const { return count == 1 || columns % kLanes == 0; }

  int64_t count, columns;
  Scratch<int32_t> of_column;
};

// Weights of heads spread over the W columns from `column` on.
template <bool Uniform, int W> struct Spread {
  int64_t first_head;
  I32<W> lane_head;
  DORYLUS_INLINE void aim(const Heads& heads, int64_t column) {
    first_head = heads.of_column[column];
    if constexpr (!Uniform && W > 1) lane_head = load_as<I32<W>>(heads.of_column.data() + column) - int32_t(first_head);
  }
  DORYLUS_INLINE F32<W> operator()(const float* weights) const {
    if constexpr (Uniform || W == 1) return splat<W>(weights[first_head]);
    else return __builtin_shuffle(load<W>(weights + first_head), lane_head);
  }
};

// One batch: weights[i * heads + h] belongs to edge first + i. `positive` are the weights of the edges whose score,
// before the leaky ReLU, was positive; their sum is kept apart because every gradient through the leaky ReLU follows
// from the two sums.
struct Batch {
  int64_t first, count;
  const float* weights;
  const float* positive;
};

template <bool Positive, bool Uniform, class In, class Column, int W, int N>
[[gnu::noinline]] void add_block(Rows<const In> x, Column column, const Batch& batch, const Heads& heads, float* sum,
                                 float* sum_pos, Block<W, N> block) {
  x = x.from(block.start), sum += block.start, sum_pos += block.start;
  Spread<Uniform, W> spread[N];
  F32<W> all[N], positive[N];
  for (int i = 0; i < N; ++i) {
    spread[i].aim(heads, block.start + block.at(i));
    all[i] = load<W>(sum + block.at(i));
    if constexpr (Positive) positive[i] = load<W>(sum_pos + block.at(i));
  }
  const float *weights = batch.weights, *weights_pos = batch.positive;
  const int64_t step = heads.count;
  for (int64_t k = 0; k < batch.count; ++k, weights += step, weights_pos += step) {
    prefetch(x[column.ahead(batch.first + k)], block);
    const In* row = x[column(batch.first + k)];
    for (int i = 0; i < N; ++i) {
      const F32<W> value = load<W>(row + block.at(i));
      all[i] += spread[i](weights) * value;
      if constexpr (Positive) positive[i] += spread[i](weights_pos) * value;
    }
  }
  for (int i = 0; i < N; ++i) {
    store(sum + block.at(i), all[i]);
    if constexpr (Positive) store(sum_pos + block.at(i), positive[i]);
  }
}

// Adds the batch's weighted rows to sum, and (Positive) those of positive score to sum_pos.
template <bool Positive, class In, class Column> void add_weighted(Rows<const In> x, Column column, const Batch& batch,
                                                                   const Heads& heads, float* sum, float* sum_pos,
                                                                   int64_t width) {
  over_columns<kRegisters / 2>(width, [&](auto block) {
    if (heads.uniform()) add_block<Positive, true>(x, column, batch, heads, sum, sum_pos, block);
    else add_block<Positive, false>(x, column, batch, heads, sum, sum_pos, block);
  });
}

// to[c] = (accumulate ? to[c] : 0) + factor[head of c] * from[c].
inline void scale_heads(const float* from, const float* factor, float* to, const Heads& heads, int64_t width,
                        bool accumulate) {
  over_columns<kRegisters / 2>(width, [&]<int W, int N>(Block<W, N> block) {
    F32<W> result[N];
    for (int i = 0; i < N; ++i) {
      const int64_t c = block.start + block.at(i);
      Spread<false, W> spread;
      spread.aim(heads, c);
      result[i] = spread(factor) * load<W>(from + c) + (accumulate ? load<W>(to + c) : F32<W>{});
    }
    for (int i = 0; i < N; ++i) store(to + block.start + block.at(i), result[i]);
  });
}

// The inner product of `count` elements.
template <class In> DORYLUS_INLINE float dot(const float* a, const In* b, int64_t count) {
  F32<kLanes> wide = {};
  F32<4> narrow = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) wide += load<kLanes>(a + i) * load<kLanes>(b + i);
  for (; i + 4 <= count; i += 4) narrow += load<4>(a + i) * load<4>(b + i);
  float total = 0;
  for (; i < count; ++i) total += a[i] * load<1>(b + i)[0];
  for (int lane = 0; lane < kLanes; ++lane) narrow[lane % 4] += wide[lane];
  return total + ((narrow[0] + narrow[1]) + (narrow[2] + narrow[3]));
}

}  // namespace dorylus::DORYLUS_ISA
