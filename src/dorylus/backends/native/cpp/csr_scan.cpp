// Single passes over the edges that only read them.
#include <algorithm>

#include "csr.h"

namespace dorylus {

void csr_loops(const CsrView& csr, int64_t first_row, bool* found) {
  for (int64_t r = 0; r < csr.num_rows; ++r)
    found[r] = std::binary_search(csr.indices + csr.indptr[r], csr.indices + csr.indptr[r + 1], int32_t(first_row + r));
}

void csr_reach(const CsrView& csr, const int8_t* levels, std::span<int8_t> reached) {
  for (int64_t r = 0; r < csr.num_rows; ++r) {
    if (levels[r] < 0) continue;
    for (int64_t e = csr.indptr[r]; e < csr.indptr[r + 1]; ++e) {
      int64_t column = csr.indices[e];
      if (column < 0 || column >= std::ssize(reached)) bad_edge(e, r, column, csr.num_rows, std::ssize(reached));
      reached[column] = std::max(reached[column], levels[r]);
    }
  }
}

Fresh<int64_t> csr_count(const CsrView& csr, const Groups& rows, const Groups& columns) {
  need_within(rows.of, "row_group", -1, rows.count);
  need_within(columns.of, "col_group", -1, columns.count);
  Fresh<int64_t> counts(rows.count * columns.count);
  std::fill_n(counts.data(), counts.size(), 0);
  for (int64_t r = 0; r < csr.num_rows; ++r) {
    if (rows.of[r] < 0) continue;
    int64_t* row = counts.data() + rows.of[r] * columns.count;
    for (int64_t e = csr.indptr[r]; e < csr.indptr[r + 1]; ++e) {
      int64_t column = csr.indices[e];
      if (column < 0 || column >= std::ssize(columns.of)) bad_edge(e, r, column, csr.num_rows, std::ssize(columns.of));
      if (columns.of[column] >= 0) ++row[columns.of[column]];
    }
  }
  return counts;
}

}  // namespace dorylus
