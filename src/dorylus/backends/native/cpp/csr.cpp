#include "csr.h"

#include <algorithm>

#include "row_sort.h"

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

void shrink(OwnedCsr& csr, int64_t num_edges) {
  csr.indices.shrink(num_edges);
  if (csr.values) csr.values->shrink(num_edges);
}

CsrView view(OwnedCsr& csr) {
  return {csr.indptr.size() - 1, csr.indptr.data(), csr.indices.data(), csr.values ? csr.values->data() : nullptr};
}

void put(OwnedCsr& csr, int64_t at, int32_t column, const float* value) {
  csr.indices[at] = column;
  if (value != nullptr) (*csr.values)[at] = *value;
}

void need_ascending(const CsrView& csr) {
  for (int64_t r = 0; r < csr.num_rows; ++r)
    for (int64_t e = csr.indptr[r] + 1; e < csr.indptr[r + 1]; ++e)
      if (csr.indices[e] < csr.indices[e - 1])
        bad_value("row " + str(r) + " is not in ascending order of columns: build the graph with csr_build first");
}

const float kOne = 1.0f;

// The new column of an edge; negative: it is dropped.
int32_t mapped(const CsrView& csr, std::span<const int32_t> columns, int64_t edge, int64_t row) {
  int64_t column = csr.indices[edge];
  if (column < 0 || column >= std::ssize(columns)) bad_edge(edge, row, column, csr.num_rows, std::ssize(columns));
  return columns[column];
}

// Prefetch, as selected rows are scattered: otherwise each would wait for memory twice. Always inline, because a call
// without an effect on values would be optimised away.
DORYLUS_INLINE void prefetch(const CsrView& csr, std::span<const int32_t> rows, int64_t at) {
  constexpr int64_t kAhead = 8;
  auto row = [&](int64_t ahead) { return std::max(rows[std::min(at + ahead, std::ssize(rows) - 1)], 0); };
  __builtin_prefetch(csr.indptr + row(2 * kAhead));
  __builtin_prefetch(csr.indices + csr.indptr[row(kAhead)]);
}

// The edges of the selected rows and a self loop each: the most that a selection can hold.
OwnedCsr room_for(const CsrView& csr, const Selection& chosen, const Loops& loops) {
  int64_t num_rows = std::ssize(chosen.rows), most = loops.none() ? 0 : num_rows;
  for (int64_t old : chosen.rows) most += csr.indptr[old + 1] - csr.indptr[old];
  return allocate(num_rows, most, csr.values != nullptr);
}

// Calls visit(new row, position, value) for every edge of a transposed selection, in ascending positions.
template <class Visit> void each_turned(const CsrView& csr, const Selection& chosen, const Loops& loops, Visit visit) {
  const float* weight_one = csr.values == nullptr ? nullptr : &kOne;
  for (int64_t p = 0; p < std::ssize(chosen.rows); ++p) {
    int64_t old = chosen.rows[p];
    prefetch(csr, chosen.rows, p);
    if (old < 0) continue;
    bool lacks_loop = p < chosen.num_columns && loops(p);
    for (int64_t e = csr.indptr[old]; e < csr.indptr[old + 1]; ++e) {
      int32_t row = mapped(csr, chosen.columns, e, old);
      if (row < 0) continue;
      visit(row, p, csr.values == nullptr ? nullptr : csr.values + e);
      lacks_loop &= row != p;
    }
    if (lacks_loop) visit(p, p, weight_one);
  }
}

}  // namespace

void bad_edge(int64_t edge, int64_t row, int64_t col, int64_t num_rows, int64_t num_cols) {
  bad_value("edge " + str(edge) + " is (" + str(row) + ", " + str(col) + "), outside " + str(num_rows) + " rows and " +
            str(num_cols) + " columns");
}

void need_within(std::span<const int32_t> numbers, const char* name, int64_t lowest, int64_t end) {
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] < lowest || numbers[i] >= end)
      bad_value(std::string(name) + "[" + str(i) + "] is " + str(numbers[i]) + ", outside " + str(lowest) + ".." +
                str(end - 1));
}

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

OwnedCsr csr_select(const CsrView& csr, const Selection& chosen, const Loops& loops) {
  need_within(chosen.rows, "rows", 0, csr.num_rows);
  need_within(chosen.columns, "columns", -1, chosen.num_columns);
  OwnedCsr result = room_for(csr, chosen, loops);
  RowSort sort(chosen.num_columns, csr.values != nullptr);
  int64_t at = result.indptr[0] = 0;
  for (int64_t r = 0; r < std::ssize(chosen.rows); ++r) {
    int64_t old = chosen.rows[r], first = at;
    bool ascending = true, lacks_loop = loops(r);
    prefetch(csr, chosen.rows, r);
    auto append = [&](int32_t column, const float* value) {
      ascending &= at == first || result.indices[at - 1] <= column;
      put(result, at++, column, value);
    };
    for (int64_t e = csr.indptr[old]; e < csr.indptr[old + 1]; ++e) {
      int32_t column = mapped(csr, chosen.columns, e, old);
      if (column < 0) continue;
      append(column, csr.values == nullptr ? nullptr : csr.values + e);
      lacks_loop &= column != r;
    }
    if (lacks_loop) append(int32_t(r), csr.values == nullptr ? nullptr : &kOne);
    float* values = csr.values == nullptr ? nullptr : result.values->data() + first;
    if (!ascending) sort(result.indices.data() + first, values, at - first);
    result.indptr[r + 1] = at;
  }
  shrink(result, at);
  return result;
}

OwnedCsr csr_select_transpose(const CsrView& csr, const Selection& chosen, const Loops& loops) {
  need_within(chosen.rows, "rows", -1, csr.num_rows);
  need_within(chosen.columns, "row_of", -1, chosen.num_columns);
  Fresh<int64_t> counts = zeros(chosen.num_columns + 1);
  each_turned(csr, chosen, loops, [&](int64_t row, int64_t, const float*) { ++counts[row + 1]; });
  accumulate(counts.data(), chosen.num_columns);
  OwnedCsr result = allocate(chosen.num_columns, counts[chosen.num_columns], csr.values != nullptr);
  std::copy_n(counts.data(), chosen.num_columns + 1, result.indptr.data());
  each_turned(csr, chosen, loops, [&](int64_t row, int64_t position, const float* value) {
    put(result, counts[row]++, int32_t(position), value);
  });
  return result;
}

OwnedCsr csr_with_loops(const CsrView& csr, int64_t first_row) {
  OwnedCsr result = allocate(csr.num_rows, csr.indptr[csr.num_rows] + csr.num_rows, csr.values != nullptr);
  int64_t at = result.indptr[0] = 0;
  for (int64_t r = 0; r < csr.num_rows; ++r) {
    int32_t own = int32_t(first_row + r);
    const int32_t *first = csr.indices + csr.indptr[r], *end = csr.indices + csr.indptr[r + 1];
    const int32_t* place = std::lower_bound(first, end, own);
    auto copy = [&](const int32_t* from, const int32_t* to) {
      for (; from != to; ++from) put(result, at++, *from, csr.values == nullptr ? nullptr : csr.values + (from - csr.indices));
    };
    copy(first, place);
    if (place == end || *place != own) put(result, at++, own, csr.values == nullptr ? nullptr : &kOne);
    copy(place, end);
    result.indptr[r + 1] = at;
  }
  shrink(result, at);
  return result;
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
  // Rows are visited in order, so the entries of row c are visited in order: one cursor a row suffices.
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
