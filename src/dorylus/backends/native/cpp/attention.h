// The weights of attention: exp(leaky_relu(s_own + s_edge) - shift), per edge and head, in batches that are never kept.
#pragma once

#include "exp.h"
#include "weighted.h"

namespace dorylus::DORYLUS_ISA {

template <int W> DORYLUS_INLINE F32<W> leaky(F32<W> x, float slope) { return x > F32<W>{} ? x : x * slope; }
template <int W> DORYLUS_INLINE F32<W> larger(F32<W> a, F32<W> b) { return a > b ? a : b; }
DORYLUS_INLINE float leaky(float x, float slope) { return x > 0 ? x : x * slope; }

// Working memory of attention: heads-many sums, batch-many weights, and the row being summed.
struct AttentionScratch {
  AttentionScratch(int64_t heads, int64_t width)
      : weights(kBatch * heads),
        positive(kBatch * heads),
        total(heads),
        total_pos(heads),
        shift(heads),
        sum(width),
        sum_pos(width) {}
  Scratch<float> weights, positive;
  Scratch<float> total, total_pos;  // per head: sums of weights (forward) or of weights * delta (backward)
  Scratch<float> shift;
  Scratch<float> sum, sum_pos;

  void clear(int64_t heads, int64_t width) const {
    __builtin_memset(total.data(), 0, size_t(heads) * sizeof(float));
    __builtin_memset(total_pos.data(), 0, size_t(heads) * sizeof(float));
    __builtin_memset(sum.data(), 0, size_t(width) * sizeof(float));
    __builtin_memset(sum_pos.data(), 0, size_t(width) * sizeof(float));
  }
};

// The inputs of an edge's weight. Forward: shift is the row's own (its largest logit) and there is no delta.
// Backward: the columns are destinations, each with its own shift (lse) and delta.
struct Scores {
  const float* own;          // of the row, per head
  Rows<const float> column;  // s_src (forward) or s_dst (backward)
  const float* row_shift;
  Rows<const float> column_shift, column_delta;
  float slope;
};

// Heads in the lanes.
template <bool Backward, class Column, int W, int N>
[[gnu::noinline]] void weigh_heads(const Scores& s, Column column, int64_t first, int64_t count, int64_t heads,
                                   const AttentionScratch& t, Block<W, N> block) {
  float *totals = t.total.data() + block.start, *totals_pos = t.total_pos.data() + block.start;
  F32<W> total[N], total_pos[N];  // all are read before any is stored: an overlapping vector counts its heads twice
  for (int i = 0; i < N; ++i)
    total[i] = load<W>(totals + block.at(i)), total_pos[i] = load<W>(totals_pos + block.at(i));
  for (int i = 0; i < N; ++i) {
    const int64_t h = block.start + block.at(i);
    const F32<W> own = load<W>(s.own + h), row_shift = Backward ? F32<W>{} : load<W>(s.row_shift + h);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t u = column(first + k), next = column.ahead(first + k);
      F32<W> shift = row_shift, delta = splat<W>(1.0f);
      if constexpr (Backward) {
        __builtin_prefetch(s.column[next] + h);
        __builtin_prefetch(s.column_shift[next] + h);
        __builtin_prefetch(s.column_delta[next] + h);
        shift = load<W>(s.column_shift[u] + h);
        delta = load<W>(s.column_delta[u] + h);
      }
      const F32<W> x = own + load<W>(s.column[u] + h);
      const F32<W> weight = exp_of<W>(leaky<W>(x, s.slope) - shift), positive = x > F32<W>{} ? weight : F32<W>{};
      store(t.weights.data() + k * heads + h, weight);
      store(t.positive.data() + k * heads + h, positive);
      total[i] += weight * delta;
      total_pos[i] += positive * delta;
    }
  }
  for (int i = 0; i < N; ++i) store(totals + block.at(i), total[i]), store(totals_pos + block.at(i), total_pos[i]);
}

// One head: edges in the lanes.
template <bool Backward, class Column> [[gnu::noinline]] void weigh_edges(const Scores& s, Column column, int64_t first,
                                                                          int64_t count, const AttentionScratch& t) {
  constexpr int W = kLanes;
  alignas(64) float score[kBatch], shift[kBatch], delta[kBatch];
  for (int64_t k = 0; k < count; ++k) {
    const int64_t u = column(first + k);
    score[k] = *s.column[u];
    shift[k] = Backward ? *s.column_shift[u] : *s.row_shift;
    delta[k] = Backward ? *s.column_delta[u] : 1.0f;
  }
  const int64_t padded = (count + W - 1) / W * W;
  for (int64_t k = count; k < padded; ++k) {  // padding of the last vector has weight 0
    score[k] = delta[k] = 0;
    shift[k] = __builtin_inff();
  }
  F32<W> total = {}, total_pos = {};
  for (int64_t k = 0; k < padded; k += W) {
    const F32<W> x = splat<W>(*s.own) + load<W>(score + k);
    const F32<W> weight = exp_of<W>(leaky<W>(x, s.slope) - load<W>(shift + k)),
                 positive = x > F32<W>{} ? weight : F32<W>{};
    store(t.weights.data() + k, weight);
    store(t.positive.data() + k, positive);
    total += weight * load<W>(delta + k);
    total_pos += positive * load<W>(delta + k);
  }
  for (int lane = 0; lane < W; ++lane) t.total[0] += total[lane], t.total_pos[0] += total_pos[lane];
}

// Fills the weights of edges first .. first + count - 1 and adds them (times delta, backward) to the totals.
template <bool Backward, class Column> DORYLUS_INLINE void weigh(const Scores& s, Column column, int64_t first,
                                                                 int64_t count, int64_t heads,
                                                                 const AttentionScratch& t) {
  if (heads == 1) return weigh_edges<Backward>(s, column, first, count, t);
  over_columns<4>(heads, [&](auto block) { weigh_heads<Backward>(s, column, first, count, heads, t, block); });
}

}  // namespace dorylus::DORYLUS_ISA
