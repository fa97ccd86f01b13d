#include "arguments.h"
#include "bindings.h"
#include "kernels.h"

namespace dorylus {

namespace {

void py_dropout(nb::handle x_, nb::handle out_, nb::handle ids, int64_t begin, int64_t end, nb::handle drop_,
                int64_t first_column) {
  if (first_column < 0 || first_column % 4 != 0) bad_value("first_column must be a multiple of 4");
  Array x(x_, "x"), out(out_, "out", true);
  Rows<float> rows = x.required<float>(0, -1);
  Range range = checked_range(begin, end, x.rows());
  Target target(out, end, x.cols());
  Drop drop(drop_, ids, end);
  DropoutArgs a{.x = rows,
                .out = target.data,
                .out_stride = target.stride,
                .width = x.cols(),
                .first_column = first_column,
                .ids = drop.ids(),
                .range = range,
                .stream = *drop.stream()};
  nb::gil_scoped_release released;
  (target.bf16 ? chosen().dropout_bf16 : chosen().dropout)(a);
}

void py_dropout_csr(nb::handle indptr, nb::handle indices, nb::handle values_, nb::handle out_, nb::handle ids,
                    int64_t begin, int64_t end, nb::handle drop_) {
  GraphRows graph(indptr, indices, begin, end);
  Array values(values_, "values"), out(out_, "out_values", true);
  Drop drop(drop_, ids, end);
  DropoutCsrArgs a{.csr = graph.csr,
                   .values = values.required<float>(graph.num_edges),
                   .out_values = out.required<float>(graph.num_edges),
                   .ids = drop.ids(),
                   .range = graph.range,
                   .stream = *drop.stream()};
  nb::gil_scoped_release released;
  chosen().dropout_csr(a);
}

}  // namespace

void bind_dropout(nb::module_& m) {
  m.def("dropout", &py_dropout);
  m.def("dropout_csr", &py_dropout_csr);
}

}  // namespace dorylus
