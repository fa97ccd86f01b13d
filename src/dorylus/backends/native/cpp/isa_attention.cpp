// Attention forward: two passes over the edges of a row, the first for the largest score, the second for weights and
// sums.
#include <math.h>

#include "attention_drop.h"
#include "isa.h"

namespace dorylus::DORYLUS_ISA {

namespace {

template <class Column, int W, int N> DORYLUS_INLINE void largest_of_heads(Rows<const float> scores, Column column,
                                                                           int64_t first, int64_t last, float* largest,
                                                                           Block<W, N> block) {
  scores = scores.from(block.start);
  F32<W> best[N];
  for (int i = 0; i < N; ++i) best[i] = load<W>(scores[column(first)] + block.at(i));
  for (int64_t e = first + 1; e < last; ++e) {
    const float* row = scores[column(e)];
    __builtin_prefetch(scores[column.ahead(e, 32)]);
    for (int i = 0; i < N; ++i) best[i] = larger<W>(load<W>(row + block.at(i)), best[i]);
  }
  for (int i = 0; i < N; ++i) store(largest + block.start + block.at(i), best[i]);
}

template <class Column>
DORYLUS_INLINE float largest_of_one(Rows<const float> scores, Column column, int64_t first, int64_t last) {
  float best[4];  // four chains hide the latency of a comparison
  for (float& b : best) b = *scores[column(first)];
  int64_t e = first;
  for (; e + 4 <= last; e += 4)
    for (int i = 0; i < 4; ++i) best[i] = *scores[column(e + i)] > best[i] ? *scores[column(e + i)] : best[i];
  for (; e < last; ++e) best[0] = *scores[column(e)] > best[0] ? *scores[column(e)] : best[0];
  for (int i = 1; i < 4; ++i) best[0] = best[i] > best[0] ? best[i] : best[0];
  return best[0];
}

// Leaves in shift the largest logit of every head: leaky ReLU does not fall, so it is that of the largest score.
template <class Column> DORYLUS_INLINE void find_shift(const AttentionArgs& a, const float* own, Column column,
                                                       int64_t first, int64_t last, float* shift) {
  if (a.heads == 1) *shift = largest_of_one(a.s_src, column, first, last);
  else over_columns<4>(a.heads, [&](auto block) { largest_of_heads(a.s_src, column, first, last, shift, block); });
  for (int64_t h = 0; h < a.heads; ++h) shift[h] = leaky(own[h] + shift[h], a.slope);
}

void store_empty(const AttentionArgs& a, int64_t v) {
  __builtin_memset(a.out[v], 0, size_t(a.width) * sizeof(float));
  if (a.lse.data != nullptr) __builtin_memset(a.lse[v], 0, size_t(a.heads) * sizeof(float));
  if (a.out_pos.data == nullptr) return;
  __builtin_memset(a.out_pos[v], 0, size_t(a.width) * sizeof(float));
  __builtin_memset(a.a_pos[v], 0, size_t(a.heads) * sizeof(float));
}

void store_row(const AttentionArgs& a, const Heads& heads, const AttentionScratch& t, int64_t v) {
  for (int64_t h = 0; h < a.heads; ++h) {
    if (a.lse.data != nullptr) a.lse[v][h] = t.shift[h] + logf(t.total[h]);
    t.total[h] = 1.0f / t.total[h];
    if (a.a_pos.data != nullptr) a.a_pos[v][h] = t.total_pos[h] * t.total[h];
  }
  scale_heads(t.sum.data(), t.total.data(), a.out[v], heads, a.width, false);
  if (a.out_pos.data != nullptr) scale_heads(t.sum_pos.data(), t.total.data(), a.out_pos[v], heads, a.width, false);
}

template <bool Positive, class In, class Column> void attend(const AttentionArgs& a, Column column) {
  const Rows<const In> x{static_cast<const In*>(a.rows_in), a.rows_in_stride};
  const Heads heads(a.heads, a.width);
  const AttentionScratch t(a.heads, a.width);
  const Scratch<float> zeros(a.heads);
  for (int64_t v = a.range.begin; v < a.range.end; ++v) {
    const int64_t first = a.csr.indptr[v], last = a.csr.indptr[v + 1];
    if (first == last) {
      store_empty(a, v);
      continue;
    }
    const float* own = a.s_dst.data == nullptr ? zeros.data() : a.s_dst[v];
    find_shift(a, own, column, first, last, t.shift.data());
    t.clear(a.heads, a.width);
    const Scores scores{own, a.s_src, t.shift.data(), {}, {}, a.slope};
    for (int64_t e = first; e < last; e += kBatch) {
      const int64_t count = least(kBatch, last - e);
      weigh<false>(scores, column, e, count, a.heads, t);
      if (a.drop != nullptr) drop_weights<false>(*a.drop, a.ids, v, column, e, count, a.heads, t);
      add_weighted<Positive>(x, column, {e, count, t.weights.data(), t.positive.data()}, heads, t.sum.data(),
                             t.sum_pos.data(), a.width);
    }
    store_row(a, heads, t, v);
  }
}

template <class In, class Column> void attention_of(const AttentionArgs& a, Column column) {
  if (a.out_pos.data != nullptr) attend<true, In>(a, column);
  else attend<false, In>(a, column);
}

}  // namespace

void attention(const AttentionArgs& a) {
  if (a.csr.indices != nullptr) attention_of<float>(a, by_index(a.csr, a.range));
  else attend<false, float>(a, by_edge(a.csr, a.range));
}
void attention_bf16(const AttentionArgs& a) { attention_of<uint16_t>(a, by_index(a.csr, a.range)); }

}  // namespace dorylus::DORYLUS_ISA
