// Reductions of messages that lie in edge order (what an edge layer on the pool gives back), and their gradients.
#include "exp.h"
#include "isa.h"
#include "weighted.h"

namespace dorylus::DORYLUS_ISA {

void segment_sum(const SegmentArgs& a) {
  const int64_t base = a.indptr[a.range.begin];
  over_rows_and_columns<kRegisters>(a.range, a.width, [&]<int W, int N>(Range rows, Block<W, N> block) {
    const Rows<float> messages = a.messages.from(block.start), out = a.out.from(block.start);
    for (int64_t v = rows.begin; v < rows.end; ++v) {
      F32<W> sum[N] = {};
      for (int64_t e = a.indptr[v]; e < a.indptr[v + 1]; ++e)
        for (int i = 0; i < N; ++i) sum[i] += load<W>(messages[e - base] + block.at(i));
      const float factor = a.row_scale == nullptr ? 1.0f : a.row_scale[v];
      for (int i = 0; i < N; ++i) sum[i] = factor * sum[i] + (a.accumulate ? load<W>(out[v] + block.at(i)) : F32<W>{});
      for (int i = 0; i < N; ++i) store(out[v] + block.at(i), sum[i]);
    }
  });
}

void segment_spread(const SegmentArgs& a) {
  const int64_t base = a.indptr[a.range.begin];
  over_rows_and_columns<kRegisters>(a.range, a.width, [&]<int W, int N>(Range rows, Block<W, N> block) {
    const Rows<float> messages = a.messages.from(block.start), out = a.out.from(block.start);
    for (int64_t v = rows.begin; v < rows.end; ++v) {
      const float factor = a.row_scale == nullptr ? 1.0f : a.row_scale[v];
      F32<W> share[N];
      for (int i = 0; i < N; ++i) share[i] = factor * load<W>(out[v] + block.at(i));
      for (int64_t e = a.indptr[v]; e < a.indptr[v + 1]; ++e)
        for (int i = 0; i < N; ++i) store(messages[e - base] + block.at(i), share[i]);
    }
  });
}

// dscores[e] = alpha_e (<dout[v], message[e]> - <dout[v], out[v]>), dmessages[e] = alpha_e dout[v], alpha_e = exp(score
// - lse).
void segment_softmax_grad(const SoftmaxGradArgs& a) {
  const int64_t base = a.indptr[a.range.begin], columns = a.width / a.heads;
  const Heads heads(a.heads, a.width);
  const Scratch<float> delta(a.heads), alpha(a.heads);
  for (int64_t v = a.range.begin; v < a.range.end; ++v) {
    const float* dout = a.dout[v];
    for (int64_t h = 0; h < a.heads; ++h) delta[h] = dot(dout + h * columns, a.out[v] + h * columns, columns);
    for (int64_t e = a.indptr[v] - base; e < a.indptr[v + 1] - base; ++e) {
      for (int64_t h = 0; h < a.heads; ++h) {
        alpha[h] = exp_of<4>(splat<4>(a.scores[e][h] - a.lse[v][h]))[0];
        a.dscores[e][h] = alpha[h] * (dot(dout + h * columns, a.messages[e] + h * columns, columns) - delta[h]);
      }
      scale_heads(dout, alpha.data(), a.dmessages[e], heads, a.width, false);
    }
  }
}

}  // namespace dorylus::DORYLUS_ISA
