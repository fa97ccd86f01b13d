#include "csr.h"

#include <algorithm>

namespace dorylus {

namespace {

std::string str(int64_t number) { return std::to_string(number); }

OwnedCsr allocate(int64_t num_rows, int64_t num_edges, bool weighted) {
  OwnedCsr csr{Fresh<int64_t>(num_rows + 1), Fresh<int32_t>(num_edges), std::nullopt};
  if (weighted) csr.values.emplace(num_edges);
  return csr;
}

// Turns counts kept at [r + 1] into offsets.
void accumulate(int64_t* indptr, int64_t num_rows) {
  for (int64_t r = 0; r < num_rows; ++r) indptr[r + 1] += indptr[r];
}

Fresh<int64_t> zeros(int64_t count) {
  Fresh<int64_t> array(count);
  std::fill_n(array.data(), count, 0);
  return array;
}

Fresh<int64_t> cursors_of(const int64_t* indptr, int64_t num_rows) {
  Fresh<int64_t> cursors(num_rows);
  std::copy_n(indptr, num_rows, cursors.data());
  return cursors;
}

CsrView view(OwnedCsr& csr) {
  return {csr.indptr.size() - 1, csr.indptr.data(), csr.indices.data(), csr.values ? csr.values->data() : nullptr};
}

void put(OwnedCsr& csr, int64_t at, int32_t column, const float* value) {
  csr.indices[at] = column;
  if (value != nullptr) (*csr.values)[at] = *value;
}

[[noreturn]] void bad_edge(int64_t edge, int64_t row, int64_t col, int64_t num_rows, int64_t num_cols) {
  bad_value("edge " + str(edge) + " is (" + str(row) + ", " + str(col) + "), outside " + str(num_rows) + " rows and " +
            str(num_cols) + " columns");
}

void need_ascending(const CsrView& csr) {
  for (int64_t r = 0; r < csr.num_rows; ++r)
    for (int64_t e = csr.indptr[r] + 1; e < csr.indptr[r + 1]; ++e)
      if (csr.indices[e] < csr.indices[e - 1])
        bad_value("row " + str(r) + " is not in ascending order of columns: build the graph with csr_build first");
}

Fresh<int32_t> inverse_of(const int32_t* order, int64_t num_rows) {
  Fresh<int32_t> inverse(num_rows);
  std::fill_n(inverse.data(), num_rows, -1);
  for (int64_t r = 0; r < num_rows; ++r) {
    int64_t old = order[r];
    if (old < 0 || old >= num_rows || inverse[old] >= 0)
      bad_value("order is not a permutation of " + str(num_rows) + " rows: order[" + str(r) + "] is " + str(old));
    inverse[old] = int32_t(r);
  }
  return inverse;
}

bool has_self_loop(const CsrView& csr, int64_t row) {
  const int32_t* last = csr.indices + csr.indptr[row + 1];
  return std::find(csr.indices + csr.indptr[row], last, int32_t(row)) != last;
}

}  // namespace

void check_indptr(const int64_t* indptr, int64_t num_rows, int64_t num_edges) {
  if (indptr[0] != 0 || indptr[num_rows] != num_edges)
    bad_value("indptr must go from 0 to the " + str(num_edges) + " edges, not from " + str(indptr[0]) + " to " +
              str(indptr[num_rows]));
  for (int64_t r = 0; r < num_rows; ++r)
    if (indptr[r + 1] < indptr[r]) bad_value("indptr falls at row " + str(r) + ": offsets may not decrease");
}

template <class Row, class Col> OwnedCsr csr_build(const Row* rows, const Col* cols, const float* values,
                                                   int64_t num_edges, int64_t num_rows, int64_t num_cols) {
  // Sorted by column first, then (by the transpose) by row: two stable passes leave the columns of a row ascending.
  OwnedCsr by_column = allocate(num_cols, num_edges, values != nullptr);
  std::fill_n(by_column.indptr.data(), num_cols + 1, 0);
  for (int64_t e = 0; e < num_edges; ++e) {
    int64_t row = rows[e], col = cols[e];
    if (row < 0 || row >= num_rows || col < 0 || col >= num_cols) bad_edge(e, row, col, num_rows, num_cols);
    ++by_column.indptr[col + 1];
  }
  accumulate(by_column.indptr.data(), num_cols);
  Fresh<int64_t> cursors = cursors_of(by_column.indptr.data(), num_cols);
  for (int64_t e = 0; e < num_edges; ++e)
    put(by_column, cursors[cols[e]]++, int32_t(rows[e]), values == nullptr ? nullptr : values + e);
  return csr_transpose(view(by_column), num_rows, nullptr);
}

template OwnedCsr csr_build(const int32_t*, const int32_t*, const float*, int64_t, int64_t, int64_t);
template OwnedCsr csr_build(const int64_t*, const int64_t*, const float*, int64_t, int64_t, int64_t);

OwnedCsr csr_transpose(const CsrView& csr, int64_t num_cols, const bool* keep_rows) {
  Fresh<int64_t> counts = zeros(num_cols + 1);
  for (int64_t r = 0; r < csr.num_rows; ++r) {
    if (keep_rows != nullptr && !keep_rows[r]) continue;
    for (int64_t e = csr.indptr[r]; e < csr.indptr[r + 1]; ++e) {
      int64_t col = csr.indices[e];
      if (col < 0 || col >= num_cols) bad_edge(e, r, col, csr.num_rows, num_cols);
      ++counts[col + 1];
    }
  }
  accumulate(counts.data(), num_cols);
  OwnedCsr result = allocate(num_cols, counts[num_cols], csr.values != nullptr);
  std::copy_n(counts.data(), num_cols + 1, result.indptr.data());
  for (int64_t r = 0; r < csr.num_rows; ++r) {
    if (keep_rows != nullptr && !keep_rows[r]) continue;
    for (int64_t e = csr.indptr[r]; e < csr.indptr[r + 1]; ++e)
      put(result, counts[csr.indices[e]]++, int32_t(r), csr.values == nullptr ? nullptr : csr.values + e);
  }
  return result;
}

OwnedCsr csr_permute(const CsrView& csr, const int32_t* order, bool self_loops) {
  Fresh<int32_t> inverse = inverse_of(order, csr.num_rows);
  int64_t num_rows = csr.num_rows, extra = 0;
  for (int64_t r = 0; self_loops && r < num_rows; ++r) extra += !has_self_loop(csr, r);
  OwnedCsr renumbered = allocate(num_rows, csr.indptr[num_rows] + extra, csr.values != nullptr);
  const float one = 1.0f, *weight_one = csr.values == nullptr ? nullptr : &one;
  int64_t at = 0;
  renumbered.indptr[0] = 0;
  for (int64_t r = 0; r < num_rows; ++r) {
    int64_t old = order[r];
    for (int64_t e = csr.indptr[old]; e < csr.indptr[old + 1]; ++e) {
      int64_t col = csr.indices[e];
      if (col < 0 || col >= num_rows) bad_edge(e, old, col, num_rows, num_rows);
      put(renumbered, at++, inverse[col], csr.values == nullptr ? nullptr : csr.values + e);
    }
    if (self_loops && !has_self_loop(csr, old)) put(renumbered, at++, int32_t(r), weight_one);
    renumbered.indptr[r + 1] = at;
  }
  // Transposing twice sorts the columns of every row.
  OwnedCsr transposed = csr_transpose(view(renumbered), num_rows, nullptr);
  return csr_transpose(view(transposed), num_rows, nullptr);
}

OwnedCsr csr_coalesce(const CsrView& csr) {
  need_ascending(csr);
  Fresh<int64_t> indptr = zeros(csr.num_rows + 1);
  for (int64_t r = 0; r < csr.num_rows; ++r)
    for (int64_t e = csr.indptr[r]; e < csr.indptr[r + 1]; ++e)
      indptr[r + 1] += e == csr.indptr[r] || csr.indices[e] != csr.indices[e - 1];
  accumulate(indptr.data(), csr.num_rows);
  OwnedCsr result = allocate(csr.num_rows, indptr[csr.num_rows], csr.values != nullptr);
  std::copy_n(indptr.data(), csr.num_rows + 1, result.indptr.data());
  int64_t at = -1;
  for (int64_t r = 0; r < csr.num_rows; ++r)
    for (int64_t e = csr.indptr[r]; e < csr.indptr[r + 1]; ++e) {
      bool again = e > csr.indptr[r] && csr.indices[e] == csr.indices[e - 1];
      if (!again) put(result, ++at, csr.indices[e], csr.values == nullptr ? nullptr : csr.values + e);
      else if (csr.values != nullptr) (*result.values)[at] += csr.values[e];
    }
  return result;
}

bool csr_is_symmetric(const CsrView& csr) {
  need_ascending(csr);
  // Rows are visited in order, so the entries of row c must be met in their own order: one cursor a row suffices.
  Fresh<int64_t> cursors = cursors_of(csr.indptr, csr.num_rows);
  for (int64_t r = 0; r < csr.num_rows; ++r)
    for (int64_t e = csr.indptr[r]; e < csr.indptr[r + 1]; ++e) {
      int64_t col = csr.indices[e];
      if (col < 0 || col >= csr.num_rows) bad_edge(e, r, col, csr.num_rows, csr.num_rows);
      int64_t twin = cursors[col]++;
      if (twin >= csr.indptr[col + 1] || csr.indices[twin] != r) return false;
      if (csr.values != nullptr && csr.values[twin] != csr.values[e]) return false;
    }
  return true;
}

}  // namespace dorylus
