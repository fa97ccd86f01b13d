// Building and reshaping compressed sparse rows. Everything but a selection, which orders row by row, is a counting
// sort: O(rows + edges), stable, no comparisons.
#pragma once

#include <optional>
#include <span>

#include "buffer.h"

namespace dorylus {

// A graph built here; values travel with their edges.
struct OwnedCsr {
  Fresh<int64_t> indptr;
  Fresh<int32_t> indices;
  std::optional<Fresh<float>> values;
};

// A view of a graph. values may be null.
struct CsrView {
  int64_t num_rows;
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;
};

// Rows to select, and the new number of each column (-1: its edges are dropped). In a transpose ``rows`` are the new
// columns (-1: none) and ``columns`` the new rows.
struct Selection {
  std::span<const int32_t> rows, columns;
  int64_t num_columns;
};

// Which new rows r get the edge (r, r) where they have none: every one, or those marked.
struct Loops {
  bool all = false;
  const bool* marked = nullptr;
  bool none() const { return !all && marked == nullptr; }
  bool operator()(int64_t row) const { return all || (marked != nullptr && marked[row]); }
};

// The group each row, or column, belongs to; -1: none.
struct Groups {
  std::span<const int32_t> of;
  int64_t count;
};

[[noreturn]] void bad_edge(int64_t edge, int64_t row, int64_t col, int64_t num_rows, int64_t num_cols);

// Numbers from `lowest` up to, not including, `end`.
void need_within(std::span<const int32_t> numbers, const char* name, int64_t lowest, int64_t end);

// Offsets that start at 0, never fall and end at num_edges; anything else would send a kernel out of bounds.
void check_indptr(const int64_t* indptr, int64_t num_rows, int64_t num_edges);

template <class Row, class Col> OwnedCsr csr_build(const Row* rows, const Col* cols, const float* values,
                                                   int64_t num_edges, int64_t num_rows, int64_t num_cols);
OwnedCsr csr_transpose(const CsrView& csr, int64_t num_cols, const bool* keep_rows);
OwnedCsr csr_select(const CsrView& csr, const Selection& chosen, const Loops& loops);
OwnedCsr csr_select_transpose(const CsrView& csr, const Selection& chosen, const Loops& loops);
// Some rows of a square matrix, the first of them numbered first_row: with a self loop each, columns ascending.
OwnedCsr csr_with_loops(const CsrView& csr, int64_t first_row);
OwnedCsr csr_coalesce(const CsrView& csr);
bool csr_is_symmetric(const CsrView& csr);
// Which of such rows have a self loop; columns must ascend.
void csr_loops(const CsrView& csr, int64_t first_row, bool* found);
void csr_reach(const CsrView& csr, const int8_t* levels, std::span<int8_t> reached);
Fresh<int64_t> csr_count(const CsrView& csr, const Groups& rows, const Groups& columns);

}  // namespace dorylus
