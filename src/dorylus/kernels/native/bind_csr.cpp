#include "bindings.h"
#include "csr.h"

namespace dorylus {

namespace {

// The array arguments of a graph, checked whole: these functions are where raw input enters.
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

nb::tuple py_csr_permute(nb::handle indptr, nb::handle indices, nb::handle order_, nb::handle values, bool self_loops) {
  GraphArguments graph(indptr, indices, values);
  Array order(order_, "order");
  const int32_t* new_to_old = order.required<int32_t>(graph.csr.num_rows);
  return to_python(unlocked([&] { return csr_permute(graph.csr, new_to_old, self_loops); }));
}

nb::tuple py_csr_coalesce(nb::handle indptr, nb::handle indices, nb::handle values) {
  GraphArguments graph(indptr, indices, values);
  return to_python(unlocked([&] { return csr_coalesce(graph.csr); }));
}

bool py_csr_is_symmetric(nb::handle indptr, nb::handle indices, nb::handle values) {
  GraphArguments graph(indptr, indices, values);
  return unlocked([&] { return csr_is_symmetric(graph.csr); });
}

}  // namespace

void bind_csr(nb::module_& m) {
  m.def("csr_build", &py_csr_build, "rows"_a, "cols"_a, "num_rows"_a, "num_cols"_a, "values"_a.none());
  m.def("csr_transpose", &py_csr_transpose, "indptr"_a, "indices"_a, "num_cols"_a, "values"_a.none(),
        "keep_rows"_a.none());
  m.def("csr_permute", &py_csr_permute, "indptr"_a, "indices"_a, "order"_a, "values"_a.none(), "self_loops"_a);
  m.def("csr_coalesce", &py_csr_coalesce, "indptr"_a, "indices"_a, "values"_a.none());
  m.def("csr_is_symmetric", &py_csr_is_symmetric, "indptr"_a, "indices"_a, "values"_a.none());
}

}  // namespace dorylus
