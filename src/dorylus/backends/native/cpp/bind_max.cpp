#include "arguments.h"
#include "bindings.h"
#include "kernels.h"

namespace dorylus {

namespace {

void py_spmm_max(nb::handle indptr, nb::handle indices, nb::handle x_, nb::handle out_, nb::handle ties_, int64_t begin,
                 int64_t end) {
  GraphRows graph(indptr, indices, begin, end);
  Array x(x_, "x"), out(out_, "out", true), ties(ties_, "ties", true);
  Source source(x, 0);
  MaxArgs a{.csr = graph.csr,
            .x = source.data,
            .x_stride = source.stride,
            .out = out.required<float>(end, source.width),
            .ties = ties.required<float>(end, source.width),
            .width = source.width,
            .range = graph.range};
  nb::gil_scoped_release released;
  (source.bf16 ? chosen().spmm_max_bf16 : chosen().spmm_max)(a);
}

void py_spmm_max_grad(nb::handle indptr, nb::handle indices, nb::handle x_, nb::handle out_, nb::handle dout_,
                      nb::handle dx_, int64_t begin, int64_t end, bool accumulate) {
  GraphRows graph(indptr, indices, begin, end);
  Array x(x_, "x"), out(out_, "out"), dout(dout_, "dout_per_tie"), dx(dx_, "dx", true);
  Source source(x, end);
  Rows<float> best = out.required<float>(0, source.width);
  MaxGradArgs a{.csr = graph.csr,
                .x = source.data,
                .x_stride = source.stride,
                .out = best,
                .dout_per_tie = dout.required<float>(out.rows(), source.width),
                .dx = dx.required<float>(end, source.width),
                .width = source.width,
                .range = graph.range,
                .accumulate = accumulate};
  nb::gil_scoped_release released;
  (source.bf16 ? chosen().spmm_max_grad_bf16 : chosen().spmm_max_grad)(a);
}

void py_segment_max(nb::handle indptr, nb::handle messages_, nb::handle out_, nb::handle ties_, int64_t begin,
                    int64_t end) {
  GraphRows graph(indptr, begin, end);
  Array messages(messages_, "messages"), out(out_, "out", true), ties(ties_, "ties", true);
  Rows<float> rows = messages.required<float>(graph.num_edges, -1);
  MaxArgs a{.csr = graph.csr,
            .x = rows.data,
            .x_stride = rows.stride,
            .out = out.required<float>(end, messages.cols()),
            .ties = ties.required<float>(end, messages.cols()),
            .width = messages.cols(),
            .range = graph.range};
  nb::gil_scoped_release released;
  chosen().spmm_max(a);
}

void py_segment_max_grad(nb::handle indptr, nb::handle messages_, nb::handle out_, nb::handle dout_,
                         nb::handle dmessages_, int64_t begin, int64_t end) {
  GraphRows graph(indptr, begin, end);
  Array messages(messages_, "messages"), out(out_, "out"), dout(dout_, "dout_per_tie"),
      dmessages(dmessages_, "dmessages", true);
  Rows<float> rows = messages.required<float>(graph.num_edges, -1);
  MaxGradArgs a{.csr = graph.csr,
                .x = rows.data,
                .x_stride = rows.stride,
                .out = out.required<float>(end, messages.cols()),
                .dout_per_tie = dout.required<float>(end, messages.cols()),
                .dx = dmessages.required<float>(graph.num_edges, messages.cols()),
                .width = messages.cols(),
                .range = graph.range,
                .accumulate = false};
  nb::gil_scoped_release released;
  chosen().segment_max_grad(a);
}

}  // namespace

void bind_max(nb::module_& m) {
  m.def("spmm_max", &py_spmm_max);
  m.def("spmm_max_grad", &py_spmm_max_grad);
  m.def("segment_max", &py_segment_max);
  m.def("segment_max_grad", &py_segment_max_grad);
}

}  // namespace dorylus
