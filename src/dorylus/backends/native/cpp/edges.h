// The row that an edge reads, and prefetching of rows.
#pragma once

#include "columns.h"

namespace dorylus::DORYLUS_ISA {

// Prefetch distance in edges: far enough for memory, near enough to stay in the first-level cache.
constexpr int64_t kAhead = 8;
// The same for rows of N vectors of W floats: short rows take less time.
template <int W, int N> constexpr int64_t kAheadOf = N * W >= 96 ? 12 : N * W >= 48 ? 24 : 32;

// The columns of a graph.
struct ByIndex {
  const int32_t* indices;
  int64_t final_edge;  // the last edge of the range: prefetching continues into the next rows, but not past the end
  DORYLUS_INLINE int64_t operator()(int64_t e) const { return indices[e]; }
  DORYLUS_INLINE int64_t ahead(int64_t e, int64_t distance = kAhead) const {
    return indices[least(e + distance, final_edge)];
  }
};

// Messages kept in edge order.
struct ByEdge {
  int64_t first_edge;
  DORYLUS_INLINE int64_t operator()(int64_t e) const { return e - first_edge; }
  DORYLUS_INLINE int64_t ahead(int64_t e, int64_t = kAhead) const { return e - first_edge; }
};

DORYLUS_INLINE ByIndex by_index(const Csr& csr, Range range) { return {csr.indices, csr.indptr[range.end] - 1}; }
DORYLUS_INLINE ByEdge by_edge(const Csr& csr, Range range) { return {csr.indptr[range.begin]}; }

}  // namespace dorylus::DORYLUS_ISA
