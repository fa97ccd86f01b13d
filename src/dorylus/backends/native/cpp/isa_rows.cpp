// Whole rows: picked, added, converted; and the outer products of a sparse matrix with a dense one.
#include "edges.h"
#include "isa.h"

namespace dorylus::DORYLUS_ISA {

namespace {

template <class In, class Out> DORYLUS_INLINE void copy_row(const In* from, Out* to, int64_t width) {
  over_columns<kRegisters>(width, [&]<int W, int N>(Block<W, N> block) {
    F32<W> held[N];
    for (int i = 0; i < N; ++i) held[i] = load<W>(from + block.start + block.at(i));
    for (int i = 0; i < N; ++i) store_as<W>(to + block.start + block.at(i), held[i]);
  });
}

// to += factor * from.
DORYLUS_INLINE void add_row(const float* from, float* to, int64_t width, float factor) {
  over_columns<kRegisters>(width, [&]<int W, int N>(Block<W, N> block) {
    F32<W> held[N];
    const float* added = from + block.start;
    float* at = to + block.start;
    for (int i = 0; i < N; ++i) held[i] = load<W>(at + block.at(i)) + factor * load<W>(added + block.at(i));
    for (int i = 0; i < N; ++i) store(at + block.at(i), held[i]);
  });
}

template <class In, class Out> DORYLUS_INLINE void copy_rows(const RowsArgs& a) {
  const Rows<const In> x{static_cast<const In*>(a.x), a.x_stride};
  const Rows<Out> out{static_cast<Out*>(a.out), a.out_stride};
  for (int64_t k = a.range.begin; k < a.range.end; ++k) {
    if (a.index != nullptr) __builtin_prefetch(x[a.index[least(k + kAhead, a.range.end - 1)]]);
    copy_row(x[a.index == nullptr ? k : a.index[k]], out[k], a.width);
  }
}

}  // namespace

void gather_rows(const RowsArgs& a) { copy_rows<float, float>(a); }
void gather_rows_bf16(const RowsArgs& a) { copy_rows<uint16_t, float>(a); }
void to_bf16(const RowsArgs& a) { copy_rows<float, uint16_t>(a); }
void from_bf16(const RowsArgs& a) { copy_rows<uint16_t, float>(a); }

void scatter_add_rows(const RowsArgs& a) {
  const Rows<const float> x{static_cast<const float*>(a.x), a.x_stride};
  const Rows<float> out{static_cast<float*>(a.out), a.out_stride};
  for (int64_t k = a.range.begin; k < a.range.end; ++k) {
    __builtin_prefetch(out[a.index[least(k + kAhead, a.range.end - 1)]], 1);
    add_row(x[k], out[a.index[k]], a.width, 1.0f);
  }
}

void spmm_outer(const OuterArgs& a) {
  const ByIndex column = by_index(a.csr, a.range);
  for (int64_t v = a.range.begin; v < a.range.end; ++v)
    for (int64_t e = a.csr.indptr[v]; e < a.csr.indptr[v + 1]; ++e) {
      __builtin_prefetch(a.dw[column.ahead(e)], 1);
      add_row(a.dz[v], a.dw[column(e)], a.width, a.values[e]);
    }
}

}  // namespace dorylus::DORYLUS_ISA
