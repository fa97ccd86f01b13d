#include "bindings.h"
#include "csr.h"

namespace dorylus {

namespace {

// The array arguments of a graph, all checked: raw input enters through these functions.
struct GraphArguments {
  GraphArguments(nb::handle indptr, nb::handle indices, nb::handle values)
      : indptr_(indptr, "indptr"), indices_(indices, "indices"), values_(values, "values") {
    const int64_t* offsets = indptr_.required<int64_t>(-1);
    const int32_t* columns = indices_.required<int32_t>(-1);
    if (indptr_.rows() == 0) bad_value("indptr must have one more element than there are rows, not 0");
    csr = {indptr_.rows() - 1, offsets, columns, values_.vector<float>(indices_.rows())};
    check_indptr(offsets, csr.num_rows, indices_.rows());
  }

  CsrView csr;

 private:
  Array indptr_, indices_, values_;
};

nb::tuple to_python(OwnedCsr csr) {
  nb::object values = csr.values ? csr.values->to_python() : nb::none();
  return nb::make_tuple(csr.indptr.to_python(), csr.indices.to_python(), values);
}

// Runs `work` without the interpreter lock.
template <class Work> auto unlocked(Work work) {
  nb::gil_scoped_release released;
  return work();
}

template <class T>
OwnedCsr build(const Array& rows, const Array& cols, const float* values, int64_t num_rows, int64_t num_cols) {
  const T* row_data = rows.vector<T>(-1);
  const T* col_data = cols.required<T>(rows.rows());
  return unlocked([&] { return csr_build(row_data, col_data, values, rows.rows(), num_rows, num_cols); });
}

nb::tuple py_csr_build(nb::handle rows_, nb::handle cols_, int64_t num_rows, int64_t num_cols, nb::handle values_) {
  Array rows(rows_, "rows"), cols(cols_, "cols"), values(values_, "values");
  if (num_rows < 0 || num_rows > INT32_MAX || num_cols < 0 || num_cols > INT32_MAX)
    bad_value("num_rows and num_cols must lie in 0..2147483647: vertices are numbered by int32");
  bool wide = rows.holds<int64_t>();
  if (!wide) rows.required<int32_t>(-1);  // raises for any other type
  const float* weights = values.vector<float>(rows.rows());
  auto make = wide ? build<int64_t> : build<int32_t>;
  return to_python(make(rows, cols, weights, num_rows, num_cols));
}

nb::tuple py_csr_transpose(nb::handle indptr, nb::handle indices, int64_t num_cols, nb::handle values,
                           nb::handle keep_) {
  GraphArguments graph(indptr, indices, values);
  Array keep(keep_, "keep_rows");
  const bool* keep_rows = keep.vector<bool>(graph.csr.num_rows);
  if (num_cols < 0 || num_cols > INT32_MAX) bad_value("num_cols must lie in 0..2147483647");
  return to_python(unlocked([&] { return csr_transpose(graph.csr, num_cols, keep_rows); }));
}

// The arguments of a selection; ``self_loops`` is a bool for all rows, or marks some.
struct SelectionArguments {
  SelectionArguments(nb::handle rows, nb::handle columns, const char* columns_name, int64_t num_columns,
                     const char* count_name, nb::handle self_loops)
      : rows_(rows, "rows"),
        columns_(columns, columns_name),
        marked_(is_flag(self_loops) ? nb::handle(Py_None) : self_loops, "self_loops") {
    const int32_t* row_data = rows_.required<int32_t>(-1);
    const int32_t* column_data = columns_.required<int32_t>(-1);
    if (num_columns < 0 || num_columns > INT32_MAX)
      bad_value(std::string(count_name) + " must lie in 0..2147483647");
    chosen = {{row_data, size_t(rows_.rows())}, {column_data, size_t(columns_.rows())}, num_columns};
    loops.all = is_flag(self_loops) && nb::cast<bool>(self_loops);
  }

  // Sizes of the new matrix: each row that may get a self loop must have a column of its number.
  void read_marks(int64_t num_rows, int64_t num_columns) {
    loops.marked = marked_.vector<bool>(num_rows);
    if (!loops.none() && num_rows > num_columns)
      bad_value("self loops of " + std::to_string(num_rows) + " rows do not fit in " + std::to_string(num_columns) +
                " columns");
  }

  Selection chosen{};
  Loops loops;

 private:
  static bool is_flag(nb::handle object) { return nb::isinstance<nb::bool_>(object); }
  Array rows_, columns_, marked_;
};

nb::tuple py_csr_select(nb::handle indptr, nb::handle indices, nb::handle rows, nb::handle columns,
                        int64_t num_columns, nb::handle values, nb::handle self_loops) {
  GraphArguments graph(indptr, indices, values);
  SelectionArguments a(rows, columns, "columns", num_columns, "num_columns", self_loops);
  a.read_marks(std::ssize(a.chosen.rows), num_columns);
  return to_python(unlocked([&] { return csr_select(graph.csr, a.chosen, a.loops); }));
}

nb::tuple py_csr_select_transpose(nb::handle indptr, nb::handle indices, nb::handle rows, nb::handle row_of,
                                  int64_t num_rows, nb::handle values, nb::handle self_loops) {
  GraphArguments graph(indptr, indices, values);
  SelectionArguments a(rows, row_of, "row_of", num_rows, "num_rows", self_loops);
  a.read_marks(num_rows, std::ssize(a.chosen.rows));
  return to_python(unlocked([&] { return csr_select_transpose(graph.csr, a.chosen, a.loops); }));
}

void need_rows(int64_t first_row, int64_t num_rows) {
  if (first_row < 0 || first_row + num_rows > INT32_MAX) bad_value("first_row must lie in 0..2147483647");
}

nb::tuple py_csr_with_loops(nb::handle indptr, nb::handle indices, nb::handle values, int64_t first_row) {
  GraphArguments graph(indptr, indices, values);
  need_rows(first_row, graph.csr.num_rows);
  return to_python(unlocked([&] { return csr_with_loops(graph.csr, first_row); }));
}

void py_csr_loops(nb::handle indptr, nb::handle indices, int64_t first_row, nb::handle found_) {
  GraphArguments graph(indptr, indices, nb::none());
  need_rows(first_row, graph.csr.num_rows);
  Array found(found_, "found", true);
  bool* into = found.required<bool>(graph.csr.num_rows);
  nb::gil_scoped_release released;
  csr_loops(graph.csr, first_row, into);
}

nb::tuple py_csr_coalesce(nb::handle indptr, nb::handle indices, nb::handle values) {
  GraphArguments graph(indptr, indices, values);
  return to_python(unlocked([&] { return csr_coalesce(graph.csr); }));
}

bool py_csr_is_symmetric(nb::handle indptr, nb::handle indices, nb::handle values) {
  GraphArguments graph(indptr, indices, values);
  return unlocked([&] { return csr_is_symmetric(graph.csr); });
}

void py_csr_reach(nb::handle indptr, nb::handle indices, nb::handle levels_, nb::handle reached_) {
  GraphArguments graph(indptr, indices, nb::none());
  Array levels(levels_, "levels"), reached(reached_, "reached", true);
  const int8_t* given = levels.required<int8_t>(graph.csr.num_rows);
  std::span<int8_t> found(reached.required<int8_t>(-1), size_t(reached.rows()));
  nb::gil_scoped_release released;
  csr_reach(graph.csr, given, found);
}

nb::object py_csr_count(nb::handle indptr, nb::handle indices, nb::handle row_group, nb::handle col_group,
                        int64_t num_row_groups, int64_t num_col_groups) {
  GraphArguments graph(indptr, indices, nb::none());
  Array rows(row_group, "row_group"), columns(col_group, "col_group");
  if (num_row_groups < 0 || num_row_groups > INT32_MAX || num_col_groups < 0 || num_col_groups > INT32_MAX)
    bad_value("num_row_groups and num_col_groups must lie in 0..2147483647");
  const int32_t* row_data = rows.required<int32_t>(graph.csr.num_rows);
  const int32_t* column_data = columns.required<int32_t>(-1);
  Groups of_rows{{row_data, size_t(rows.rows())}, num_row_groups};
  Groups of_columns{{column_data, size_t(columns.rows())}, num_col_groups};
  return unlocked([&] { return csr_count(graph.csr, of_rows, of_columns); }).to_python();
}

}  // namespace

void bind_csr(nb::module_& m) {
  m.def("csr_build", &py_csr_build, "rows"_a, "cols"_a, "num_rows"_a, "num_cols"_a, "values"_a.none());
  m.def("csr_transpose", &py_csr_transpose, "indptr"_a, "indices"_a, "num_cols"_a, "values"_a.none(),
        "keep_rows"_a.none());
  m.def("csr_select", &py_csr_select, "indptr"_a, "indices"_a, "rows"_a, "columns"_a, "num_columns"_a,
        "values"_a.none(), "self_loops"_a);
  m.def("csr_select_transpose", &py_csr_select_transpose, "indptr"_a, "indices"_a, "rows"_a, "row_of"_a, "num_rows"_a,
        "values"_a.none(), "self_loops"_a);
  m.def("csr_with_loops", &py_csr_with_loops, "indptr"_a, "indices"_a, "values"_a.none(), "first_row"_a);
  m.def("csr_loops", &py_csr_loops, "indptr"_a, "indices"_a, "first_row"_a, "found"_a);
  m.def("csr_reach", &py_csr_reach, "indptr"_a, "indices"_a, "levels"_a, "reached"_a);
  m.def("csr_count", &py_csr_count, "indptr"_a, "indices"_a, "row_group"_a, "col_group"_a, "num_row_groups"_a,
        "num_col_groups"_a);
  m.def("csr_coalesce", &py_csr_coalesce, "indptr"_a, "indices"_a, "values"_a.none());
  m.def("csr_is_symmetric", &py_csr_is_symmetric, "indptr"_a, "indices"_a, "values"_a.none());
}

}  // namespace dorylus
