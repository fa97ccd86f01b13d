// Attention backward. Weights are computed again from the scores and lse; the two sums of the forward pass, over all
// edges and over those of positive score, give every gradient through the leaky ReLU:
//   ds_src[u] = sum_e alpha_e (keep_e <dout[v], z[u]> - delta[v]) leaky'_e = <z[u], G> - D,
// with leaky' = slope + (1 - slope) [score > 0], so that G and D need only be summed over the edges, never taken per
// edge.
#include "attention_drop.h"
#include "isa.h"

namespace dorylus::DORYLUS_ISA {

namespace {

template <class In> void project(const AttentionGradArgs& a, const AttentionScratch& t, int64_t u) {
  const In* z = Rows<const In>{static_cast<const In*>(a.z), a.z_stride}[u];
  const int64_t columns = a.width / a.heads;
  const float rise = 1.0f - a.slope;
  for (int64_t h = 0; h < a.heads; ++h) {
    const int64_t c = h * columns;
    const float inner =
        a.slope * dot(t.sum.data() + c, z + c, columns) + rise * dot(t.sum_pos.data() + c, z + c, columns);
    const float result = inner - (a.slope * t.total[h] + rise * t.total_pos[h]);
    a.ds_src[u][h] = a.accumulate ? a.ds_src[u][h] + result : result;
  }
}

template <class In> void attend_back(const AttentionGradArgs& a) {
  const Rows<const In> dout{static_cast<const In*>(a.rows_in), a.rows_in_stride};
  const ByIndex column = by_index(a.csr, a.range);
  const Heads heads(a.heads, a.width);
  const AttentionScratch t(a.heads, a.width);
  const Scratch<float> ones(a.heads);
  for (int64_t h = 0; h < a.heads; ++h) ones[h] = 1.0f;
  for (int64_t u = a.range.begin; u < a.range.end; ++u) {
    const int64_t first = a.csr.indptr[u], last = a.csr.indptr[u + 1];
    t.clear(a.heads, a.width);
    const Scores scores{a.s_src[u], a.s_dst, nullptr, a.lse, a.delta, a.slope};
    for (int64_t e = first; e < last; e += kBatch) {
      const int64_t count = least(kBatch, last - e);
      weigh<true>(scores, column, e, count, a.heads, t);
      if (a.drop != nullptr) drop_weights<true>(*a.drop, a.ids, u, column, e, count, a.heads, t);
      add_weighted<true>(dout, column, {e, count, t.weights.data(), t.positive.data()}, heads, t.sum.data(),
                         t.sum_pos.data(), a.width);
    }
    (a.z_bf16 ? project<uint16_t> : project<float>)(a, t, u);
    scale_heads(t.sum.data(), ones.data(), a.dz[u], heads, a.width, a.accumulate);
  }
}

template <class In> void grad_dst_of(const AttentionGradDstArgs& a) {
  const Rows<const In> dout{static_cast<const In*>(a.dout), a.dout_stride};
  const int64_t columns = a.width / a.heads;
  for (int64_t v = a.range.begin; v < a.range.end; ++v)
    for (int64_t h = 0; h < a.heads; ++h) {
      const In* d = dout[v] + h * columns;
      const float delta = dot(a.out[v] + h * columns, d, columns), inner = dot(a.out_pos[v] + h * columns, d, columns);
      a.delta[v][h] = delta;
      a.ds_dst[v][h] = (1.0f - a.slope) * (inner - delta * a.a_pos[v][h]);
    }
}

}  // namespace

void attention_grad_src(const AttentionGradArgs& a) { attend_back<float>(a); }
void attention_grad_src_bf16(const AttentionGradArgs& a) { attend_back<uint16_t>(a); }
void attention_grad_dst(const AttentionGradDstArgs& a) { grad_dst_of<float>(a); }
void attention_grad_dst_bf16(const AttentionGradDstArgs& a) { grad_dst_of<uint16_t>(a); }

}  // namespace dorylus::DORYLUS_ISA
