#include "arguments.h"
#include "bindings.h"
#include "kernels.h"

namespace dorylus {

namespace {

void py_segment_sum(nb::handle indptr, nb::handle messages_, nb::handle out_, int64_t begin, int64_t end,
                    nb::handle row_scale_, bool accumulate) {
  GraphRows graph(indptr, begin, end);
  Array messages(messages_, "messages"), out(out_, "out", true), row_scale(row_scale_, "row_scale");
  SegmentArgs a{.indptr = graph.csr.indptr,
                .messages = messages.required<float>(graph.num_edges, -1),
                .out = out.required<float>(end, messages.cols()),
                .width = messages.cols(),
                .range = graph.range,
                .row_scale = row_scale.vector<float>(graph.num_rows),
                .accumulate = accumulate};
  nb::gil_scoped_release released;
  chosen().segment_sum(a);
}

void py_segment_spread(nb::handle indptr, nb::handle dout_, nb::handle dmessages_, int64_t begin, int64_t end,
                       nb::handle row_scale_) {
  GraphRows graph(indptr, begin, end);
  Array dout(dout_, "dout"), dmessages(dmessages_, "dmessages", true), row_scale(row_scale_, "row_scale");
  SegmentArgs a{.indptr = graph.csr.indptr,
                .messages = dmessages.required<float>(graph.num_edges, -1),
                .out = dout.required<float>(end, dmessages.cols()),
                .width = dmessages.cols(),
                .range = graph.range,
                .row_scale = row_scale.vector<float>(graph.num_rows),
                .accumulate = false};
  nb::gil_scoped_release released;
  chosen().segment_spread(a);
}

void py_segment_softmax(nb::handle indptr, nb::handle scores_, nb::handle messages_, nb::handle out_, nb::handle lse_,
                        int64_t begin, int64_t end, int64_t heads) {
  GraphRows graph(indptr, begin, end);
  Array scores(scores_, "scores"), messages(messages_, "messages"), out(out_, "out", true), lse(lse_, "lse", true);
  Rows<float> rows = messages.required<float>(graph.num_edges, -1);
  check_heads(heads, messages.cols(), "messages");
  AttentionArgs a{};  // attention without destination scores, whose leaky ReLU is the identity
  a.csr = graph.csr, a.range = graph.range, a.slope = 1.0f;
  a.rows_in = rows.data, a.rows_in_stride = rows.stride, a.width = messages.cols(), a.heads = heads;
  a.s_src = scores.required<float>(graph.num_edges, heads);
  a.out = out.required<float>(end, messages.cols());
  a.lse = lse.required<float>(end, heads);
  nb::gil_scoped_release released;
  chosen().attention(a);
}

void py_segment_softmax_grad(nb::handle indptr, nb::handle scores_, nb::handle messages_, nb::handle out_,
                             nb::handle lse_, nb::handle dout_, nb::handle dscores_, nb::handle dmessages_,
                             int64_t begin, int64_t end, int64_t heads) {
  GraphRows graph(indptr, begin, end);
  Array scores(scores_, "scores"), messages(messages_, "messages"), out(out_, "out"), lse(lse_, "lse"),
      dout(dout_, "dout"), dscores(dscores_, "dscores", true), dmessages(dmessages_, "dmessages", true);
  Rows<float> rows = messages.required<float>(graph.num_edges, -1);
  int64_t width = messages.cols();
  check_heads(heads, width, "messages");
  SoftmaxGradArgs a{.indptr = graph.csr.indptr,
                    .scores = scores.required<float>(graph.num_edges, heads),
                    .messages = rows,
                    .out = out.required<float>(end, width),
                    .lse = lse.required<float>(end, heads),
                    .dout = dout.required<float>(end, width),
                    .dscores = dscores.required<float>(graph.num_edges, heads),
                    .dmessages = dmessages.required<float>(graph.num_edges, width),
                    .width = width,
                    .heads = heads,
                    .range = graph.range};
  nb::gil_scoped_release released;
  chosen().segment_softmax_grad(a);
}

}  // namespace

void bind_segment(nb::module_& m) {
  m.def("segment_sum", &py_segment_sum, "indptr"_a, "messages"_a, "out"_a, "begin"_a, "end"_a, "row_scale"_a.none(),
        "accumulate"_a);
  m.def("segment_spread", &py_segment_spread, "indptr"_a, "dout"_a, "dmessages"_a, "begin"_a, "end"_a,
        "row_scale"_a.none());
  m.def("segment_softmax", &py_segment_softmax);
  m.def("segment_softmax_grad", &py_segment_softmax_grad);
}

}  // namespace dorylus
