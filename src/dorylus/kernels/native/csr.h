// Building and reshaping compressed sparse rows. Everything is a counting sort: O(rows + edges), stable, no
// comparisons.
#pragma once

#include <optional>

#include "buffer.h"

namespace dorylus {

// A graph built here; values travel with their edges.
struct OwnedCsr {
  Fresh<int64_t> indptr;
  Fresh<int32_t> indices;
  std::optional<Fresh<float>> values;
};

// A graph seen here. values may be null.
struct CsrView {
  int64_t num_rows;
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;
};

// Offsets that start at 0, never fall and end at num_edges; anything else would send a kernel out of bounds.
void check_indptr(const int64_t* indptr, int64_t num_rows, int64_t num_edges);

template <class Row, class Col> OwnedCsr csr_build(const Row* rows, const Col* cols, const float* values,
                                                   int64_t num_edges, int64_t num_rows, int64_t num_cols);
OwnedCsr csr_transpose(const CsrView& csr, int64_t num_cols, const bool* keep_rows);
OwnedCsr csr_permute(const CsrView& csr, const int32_t* order, bool self_loops);
OwnedCsr csr_coalesce(const CsrView& csr);
bool csr_is_symmetric(const CsrView& csr);

}  // namespace dorylus
