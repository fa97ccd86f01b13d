#include "arguments.h"
#include "bindings.h"
#include "kernels.h"

namespace dorylus {

namespace {

void py_spmm(nb::handle indptr, nb::handle indices, nb::handle x_, nb::handle out_, int64_t begin, int64_t end,
             nb::handle values_, nb::handle row_scale_, nb::handle col_scale_, bool mean, bool accumulate) {
  GraphRows graph(indptr, indices, begin, end);
  Array x(x_, "x"), out(out_, "out", true), values(values_, "values"), row_scale(row_scale_, "row_scale"),
      col_scale(col_scale_, "col_scale");
  Source source(x, 0);
  SpmmArgs a{.csr = graph.csr,
             .x = source.data,
             .x_stride = source.stride,
             .num_sources = x.rows(),
             .out = out.required<float>(end, source.width),
             .width = source.width,
             .range = graph.range,
             .values = values.vector<float>(graph.num_edges),
             .row_scale = row_scale.vector<float>(graph.num_rows),
             .col_scale = col_scale.vector<float>(x.rows()),
             .mean = mean,
             .accumulate = accumulate};
  nb::gil_scoped_release released;
  (source.bf16 ? chosen().spmm_bf16 : chosen().spmm)(a);
}

double py_gather_limit(nb::handle indptr, nb::handle indices, nb::handle x_, int64_t begin, int64_t end) {
  GraphRows graph(indptr, indices, begin, end);
  Array x(x_, "x");
  Rows<float> rows = x.required<float>(0, -1);
  SpmmArgs a{};
  a.csr = graph.csr, a.x = rows.data, a.x_stride = rows.stride, a.num_sources = x.rows(), a.width = x.cols(),
  a.range = graph.range;
  nb::gil_scoped_release released;
  return chosen().gather_limit(a);
}

void py_spmm_outer(nb::handle indptr, nb::handle indices, nb::handle values_, nb::handle dz_, nb::handle dw_,
                   int64_t begin, int64_t end) {
  GraphRows graph(indptr, indices, begin, end);
  Array values(values_, "values"), dz(dz_, "dz"), dw(dw_, "dw", true);
  OuterArgs a{.csr = graph.csr,
              .values = values.required<float>(graph.num_edges),
              .dz = dz.required<float>(end, -1),
              .dw = dw.required<float>(0, dz.cols()),
              .width = dz.cols(),
              .range = graph.range};
  nb::gil_scoped_release released;
  chosen().spmm_outer(a);
}

}  // namespace

void bind_spmm(nb::module_& m) {
  m.def("spmm", &py_spmm, "indptr"_a, "indices"_a, "x"_a, "out"_a, "begin"_a, "end"_a, "values"_a.none(),
        "row_scale"_a.none(), "col_scale"_a.none(), "mean"_a, "accumulate"_a);
  m.def("gather_limit", &py_gather_limit);
  m.def("spmm_outer", &py_spmm_outer);
}

}  // namespace dorylus
