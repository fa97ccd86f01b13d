// The columnwise maximum over a row's edges, how many edges attain it, and its gradient: shared evenly among the ties.
#include "edges.h"
#include "isa.h"

namespace dorylus::DORYLUS_ISA {

namespace {

constexpr int kPairs = kRegisters / 2;  // two vectors are kept for every vector of columns

template <class In, class Column, int W, int N>
[[gnu::noinline]] void max_rows(const MaxArgs& a, Rows<const In> x, Column column, Range rows, Block<W, N> block) {
  const F32<W> one = splat<W>(1.0f);
  x = x.from(block.start);
  for (int64_t v = rows.begin; v < rows.end; ++v) {
    const int64_t first = a.csr.indptr[v], last = a.csr.indptr[v + 1];
    F32<W> best[N] = {}, ties[N];
    for (int i = 0; i < N; ++i) ties[i] = one;
    for (int i = 0; i < N && first < last; ++i) best[i] = load<W>(x[column(first)] + block.at(i));
    for (int64_t e = first + 1; e < last; ++e) {
      prefetch(x[column.ahead(e)], block);
      for (int i = 0; i < N; ++i) {
        const F32<W> value = load<W>(x[column(e)] + block.at(i));
        const auto better = (value > best[i]) | (value != value);  // NaN propagates
        ties[i] = better ? one : (value == best[i] ? ties[i] + one : ties[i]);
        best[i] = better ? value : best[i];
      }
    }
    for (int i = 0; i < N; ++i) store(a.out[v] + block.start + block.at(i), best[i]);
    for (int i = 0; i < N; ++i) store(a.ties[v] + block.start + block.at(i), ties[i]);
  }
}

template <class In> void max_of(const MaxArgs& a) {
  const Rows<const In> x{static_cast<const In*>(a.x), a.x_stride};
  over_rows_and_columns<kPairs>(a.range, a.width, [&](Range rows, auto block) {
    if (a.csr.indices != nullptr) max_rows(a, x, by_index(a.csr, a.range), rows, block);
    else max_rows(a, x, by_edge(a.csr, a.range), rows, block);
  });
}

template <class In, int W, int N>
[[gnu::noinline]] void grad_rows(const MaxGradArgs& a, Rows<const In> x, Range rows, Block<W, N> block) {
  const ByIndex column = by_index(a.csr, a.range);
  const Rows<const float> best = a.out.from(block.start), shares = a.dout_per_tie.from(block.start);
  const Rows<float> dx = a.dx.from(block.start);
  x = x.from(block.start);
  for (int64_t u = rows.begin; u < rows.end; ++u) {
    F32<W> own[N], sum[N];
    for (int i = 0; i < N; ++i) own[i] = load<W>(x[u] + block.at(i));
    for (int i = 0; i < N; ++i) sum[i] = a.accumulate ? load<W>(dx[u] + block.at(i)) : F32<W>{};
    for (int64_t e = a.csr.indptr[u]; e < a.csr.indptr[u + 1]; ++e) {
      const int64_t v = column(e), next = column.ahead(e);
      prefetch(best[next], block);
      prefetch(shares[next], block);
      for (int i = 0; i < N; ++i) {
        const F32<W> share = load<W>(shares[v] + block.at(i));
        sum[i] += load<W>(best[v] + block.at(i)) == own[i] ? share : F32<W>{};
      }
    }
    for (int i = 0; i < N; ++i) store(dx[u] + block.at(i), sum[i]);
  }
}

template <class In> void grad_of(const MaxGradArgs& a) {
  const Rows<const In> x{static_cast<const In*>(a.x), a.x_stride};
  over_rows_and_columns<kPairs>(a.range, a.width, [&](Range rows, auto block) { grad_rows(a, x, rows, block); });
}

}  // namespace

void spmm_max(const MaxArgs& a) { max_of<float>(a); }
void spmm_max_bf16(const MaxArgs& a) { max_of<uint16_t>(a); }
void spmm_max_grad(const MaxGradArgs& a) { grad_of<float>(a); }
void spmm_max_grad_bf16(const MaxGradArgs& a) { grad_of<uint16_t>(a); }

void segment_max_grad(const MaxGradArgs& a) {
  const Rows<const float> messages{static_cast<const float*>(a.x), a.x_stride};
  const ByEdge message = by_edge(a.csr, a.range);
  over_rows_and_columns<kPairs>(a.range, a.width, [&]<int W, int N>(Range rows, Block<W, N> block) {
    for (int64_t v = rows.begin; v < rows.end; ++v)
      for (int64_t e = a.csr.indptr[v]; e < a.csr.indptr[v + 1]; ++e)
        for (int i = 0; i < N; ++i) {
          const int64_t c = block.start + block.at(i);
          const F32<W> share = load<W>(a.dout_per_tie[v] + c), best = load<W>(a.out[v] + c);
          store(a.dx[message(e)] + c, load<W>(messages[message(e)] + c) == best ? share : F32<W>{});
        }
  });
}

}  // namespace dorylus::DORYLUS_ISA
