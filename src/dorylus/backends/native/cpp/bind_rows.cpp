#include "arguments.h"
#include "bindings.h"
#include "kernels.h"

namespace dorylus {

namespace {

// Row numbers are not trusted: one out of bounds is reported, not read.
const int32_t* checked_index(const Array& index, int64_t num_rows) {
  const int32_t* numbers = index.required<int32_t>(-1);
  for (int64_t k = 0; k < index.rows(); ++k)
    if (numbers[k] < 0 || numbers[k] >= num_rows)
      bad_value("index[" + std::to_string(k) + "] is " + std::to_string(numbers[k]) + ", outside " +
                std::to_string(num_rows) + " rows");
  return numbers;
}

void py_gather_rows(nb::handle x_, nb::handle index_, nb::handle out_) {
  Array x(x_, "x"), index(index_, "index"), out(out_, "out", true);
  Source source(x, 0);
  const int32_t* numbers = checked_index(index, x.rows());
  Rows<float> rows = out.required<float>(index.rows(), source.width);
  RowsArgs a{source.data, source.stride, rows.data, rows.stride, source.width, numbers, {0, index.rows()}};
  nb::gil_scoped_release released;
  (source.bf16 ? chosen().gather_rows_bf16 : chosen().gather_rows)(a);
}

void py_scatter_add_rows(nb::handle src_, nb::handle index_, nb::handle out_) {
  Array src(src_, "src"), index(index_, "index"), out(out_, "out", true);
  Rows<float> from = src.required<float>(0, -1), to = out.required<float>(0, src.cols());
  const int32_t* numbers = checked_index(index, out.rows());
  src.required<float>(index.rows(), -1);
  RowsArgs a{from.data, from.stride, to.data, to.stride, src.cols(), numbers, {0, index.rows()}};
  nb::gil_scoped_release released;
  chosen().scatter_add_rows(a);
}

void py_to_bf16(nb::handle x_, nb::handle out_, int64_t begin, int64_t end) {
  Array x(x_, "x"), out(out_, "out", true);
  Rows<float> from = x.required<float>(0, -1);
  Range range = checked_range(begin, end, x.rows());
  Rows<uint16_t> to = out.required<uint16_t>(end, x.cols());
  RowsArgs a{from.data, from.stride, to.data, to.stride, x.cols(), nullptr, range};
  nb::gil_scoped_release released;
  chosen().to_bf16(a);
}

void py_from_bf16(nb::handle x_, nb::handle out_, int64_t begin, int64_t end) {
  Array x(x_, "x"), out(out_, "out", true);
  Rows<uint16_t> from = x.required<uint16_t>(0, -1);
  Range range = checked_range(begin, end, x.rows());
  Rows<float> to = out.required<float>(end, x.cols());
  RowsArgs a{from.data, from.stride, to.data, to.stride, x.cols(), nullptr, range};
  nb::gil_scoped_release released;
  chosen().from_bf16(a);
}

}  // namespace

void bind_rows(nb::module_& m) {
  m.def("gather_rows", &py_gather_rows);
  m.def("scatter_add_rows", &py_scatter_add_rows);
  m.def("to_bf16", &py_to_bf16);
  m.def("from_bf16", &py_from_bf16);
}

}  // namespace dorylus
