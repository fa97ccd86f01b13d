// The gather: sums of neighbours' rows. Accumulators of up to 8 vectors stay in registers over all edges of a row.
#include "edges.h"
#include "isa.h"

namespace dorylus::DORYLUS_ISA {

namespace {

template <class In> struct Source {
  Rows<const In> x;
  const float* values;
  const float* col_scale;
};

// The factor of edge e from column u; which factors exist is known at compile time.
template <bool Values, bool Scaled, class In> DORYLUS_INLINE float weight(const Source<In>& s, int64_t e, int64_t u) {
  if constexpr (Values && Scaled) return s.values[e] * s.col_scale[u];
  if constexpr (Values) return s.values[e];
  return s.col_scale[u];
}

DORYLUS_INLINE float row_factor(const SpmmArgs& a, int64_t v, int64_t degree) {
  float factor = a.row_scale == nullptr ? 1.0f : a.row_scale[v];
  return a.mean && degree > 0 ? factor / float(degree) : factor;
}

template <int W, int N>
DORYLUS_INLINE void finish(float* out, Block<W, N> block, const F32<W>* sum, float factor, bool accumulate) {
  F32<W> result[N];
  for (int i = 0; i < N; ++i) result[i] = factor * sum[i];
  if (accumulate)
    for (int i = 0; i < N; ++i) result[i] += load<W>(out + block.at(i));
  for (int i = 0; i < N; ++i) store(out + block.at(i), result[i]);
}

template <bool Values, bool Scaled, class In, int W, int N>
[[gnu::noinline]] void sum_rows(const SpmmArgs& a, const Source<In> s, Range rows, Block<W, N> block) {
  const ByIndex column = by_index(a.csr, a.range);
  const Rows<const In> x = s.x.from(block.start);
  for (int64_t v = rows.begin; v < rows.end; ++v) {
    const int64_t first = a.csr.indptr[v], last = a.csr.indptr[v + 1];
    F32<W> sum[N] = {};
    for (int64_t e = first; e < last; ++e) {
      const int64_t next = column.ahead(e, kAheadOf<W, N>);
      prefetch(x[next], block);
      if constexpr (Scaled) __builtin_prefetch(s.col_scale + next);
      const int64_t u = column(e);
      const In* row = x[u];
      if constexpr (Values || Scaled) {
        const float w = weight<Values, Scaled>(s, e, u);
        for (int i = 0; i < N; ++i) sum[i] += w * load<W>(row + block.at(i));
      } else {
        for (int i = 0; i < N; ++i) sum[i] += load<W>(row + block.at(i));
      }
    }
    finish(a.out[v] + block.start, block, sum, row_factor(a, v, last - first), a.accumulate);
  }
}

// Wide rows take several passes. Where sources are read many times, every row makes one pass before any makes the next:
// a block of columns of all sources stays in the last-level cache far longer than whole rows would (2.3x at 46,000 x
// 602). Where most are read once, a few rows make all their passes: rows fetched by one pass are still in cache for the
// next.
int64_t rows_a_pass(const SpmmArgs& a) {
  const int64_t reads = a.csr.indptr[a.range.end] - a.csr.indptr[a.range.begin];
  return reads >= a.num_sources ? kAllRows : kFewRows;
}

template <class In, bool Values, bool Scaled> void spmm_weighted(const SpmmArgs& a) {
  const Source<In> source{{static_cast<const In*>(a.x), a.x_stride}, a.values, a.col_scale};
  const auto sum = [&](Range rows, auto block) { sum_rows<Values, Scaled>(a, source, rows, block); };
  over_rows_and_columns<kRegisters>(a.range, a.width, sum, rows_a_pass(a));
}

template <class In> void spmm_of(const SpmmArgs& a) {
  if (a.values != nullptr && a.col_scale != nullptr) return spmm_weighted<In, true, true>(a);
  if (a.values != nullptr) return spmm_weighted<In, true, false>(a);
  if (a.col_scale != nullptr) return spmm_weighted<In, false, true>(a);
  spmm_weighted<In, false, false>(a);
}

template <int W, int N> [[gnu::noinline]] float read_rows(const SpmmArgs& a, Range rows, Block<W, N> block) {
  const ByIndex column = by_index(a.csr, a.range);
  const Rows<const float> x = Rows<const float>{static_cast<const float*>(a.x), a.x_stride}.from(block.start);
  F32<W> sum[N] = {};
  for (int64_t e = a.csr.indptr[rows.begin]; e < a.csr.indptr[rows.end]; ++e) {
    prefetch(x[column.ahead(e, kAheadOf<W, N>)], block);
    for (int i = 0; i < N; ++i) sum[i] += load<W>(x[column(e)] + block.at(i));
  }
  float total = 0;
  for (int i = 0; i < N; ++i)
    for (int lane = 0; lane < W; ++lane) total += sum[i][lane];
  return total;
}

}  // namespace

// Only the loads of spmm: the limit that memory bandwidth sets.
double gather_limit(const SpmmArgs& a) {
  double total = 0;
  const auto read = [&](Range rows, auto block) { total += read_rows(a, rows, block); };
  over_rows_and_columns<kRegisters>(a.range, a.width, read, rows_a_pass(a));
  return total;
}

void spmm(const SpmmArgs& a) { spmm_of<float>(a); }
void spmm_bf16(const SpmmArgs& a) { spmm_of<uint16_t>(a); }

}  // namespace dorylus::DORYLUS_ISA
