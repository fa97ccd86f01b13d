#include "arguments.h"
#include "bindings.h"
#include "kernels.h"

namespace dorylus {

namespace {

void check_slope(double slope) {
  if (!(slope >= 0)) bad_value("slope must be at least 0: a leaky ReLU that falls has its largest logit elsewhere");
}

void py_attention(nb::handle indptr, nb::handle indices, nb::handle z_, nb::handle s_src_, nb::handle s_dst_,
                  nb::handle out_, int64_t begin, int64_t end, int64_t heads, double slope, nb::handle lse_,
                  nb::handle out_pos_, nb::handle a_pos_, nb::handle drop_, nb::handle ids_) {
  GraphRows graph(indptr, indices, begin, end);
  Array z(z_, "z"), s_src(s_src_, "s_src"), s_dst(s_dst_, "s_dst"), out(out_, "out", true), lse(lse_, "lse", true),
      out_pos(out_pos_, "out_pos", true), a_pos(a_pos_, "a_pos", true);
  Source source(z, 0);
  check_heads(heads, source.width, "z");
  check_slope(slope);
  if (lse.present() != out_pos.present() || lse.present() != a_pos.present())
    bad_value("give all of lse, out_pos and a_pos (training) or none of them (evaluation)");
  Drop drop(drop_, ids_, z.rows());
  AttentionArgs a{.csr = graph.csr,
                  .rows_in = source.data,
                  .rows_in_stride = source.stride,
                  .width = source.width,
                  .heads = heads,
                  .range = graph.range,
                  .slope = float(slope),
                  .s_src = s_src.required<float>(z.rows(), heads),
                  .s_dst = s_dst.required<float>(end, heads),
                  .out = out.required<float>(end, source.width),
                  .lse = lse.matrix<float>(end, heads),
                  .out_pos = out_pos.matrix<float>(end, source.width),
                  .a_pos = a_pos.matrix<float>(end, heads),
                  .drop = drop.stream(),
                  .ids = drop.ids()};
  if (drop.stream() != nullptr && z.rows() < end) bad_value("z must have a row for every vertex of the range");
  nb::gil_scoped_release released;
  (source.bf16 ? chosen().attention_bf16 : chosen().attention)(a);
}

void py_attention_grad_src(nb::handle indptr, nb::handle indices, nb::handle z_, nb::handle s_src_, nb::handle s_dst_,
                           nb::handle lse_, nb::handle delta_, nb::handle dout_, nb::handle dz_, nb::handle ds_src_,
                           int64_t begin, int64_t end, int64_t heads, double slope, nb::handle drop_, nb::handle ids_,
                           bool accumulate) {
  GraphRows graph(indptr, indices, begin, end);
  Array z(z_, "z"), s_src(s_src_, "s_src"), s_dst(s_dst_, "s_dst"), lse(lse_, "lse"), delta(delta_, "delta"),
      dout(dout_, "dout"), dz(dz_, "dz", true), ds_src(ds_src_, "ds_src", true);
  Source own(z, end), incoming(dout, 0, own.width);
  check_heads(heads, own.width, "z");
  check_slope(slope);
  Drop drop(drop_, ids_, end > dout.rows() ? end : dout.rows());
  AttentionGradArgs a{.csr = graph.csr,
                      .rows_in = incoming.data,
                      .rows_in_stride = incoming.stride,
                      .width = own.width,
                      .heads = heads,
                      .range = graph.range,
                      .slope = float(slope),
                      .s_src = s_src.required<float>(end, heads),
                      .s_dst = s_dst.required<float>(dout.rows(), heads),
                      .lse = lse.required<float>(dout.rows(), heads),
                      .delta = delta.required<float>(dout.rows(), heads),
                      .z = own.data,
                      .z_stride = own.stride,
                      .z_bf16 = own.bf16,
                      .dz = dz.required<float>(end, own.width),
                      .ds_src = ds_src.required<float>(end, heads),
                      .drop = drop.stream(),
                      .ids = drop.ids(),
                      .accumulate = accumulate};
  nb::gil_scoped_release released;
  (incoming.bf16 ? chosen().attention_grad_src_bf16 : chosen().attention_grad_src)(a);
}

void py_attention_grad_dst(nb::handle out_, nb::handle out_pos_, nb::handle a_pos_, nb::handle dout_, nb::handle delta_,
                           nb::handle ds_dst_, int64_t begin, int64_t end, int64_t heads, double slope) {
  Array out(out_, "out"), out_pos(out_pos_, "out_pos"), a_pos(a_pos_, "a_pos"), dout(dout_, "dout"),
      delta(delta_, "delta", true), ds_dst(ds_dst_, "ds_dst", true);
  Rows<float> rows = out.required<float>(0, -1);
  int64_t width = out.cols();
  check_heads(heads, width, "out");
  Range range = checked_range(begin, end, out.rows());
  Source incoming(dout, end, width);
  AttentionGradDstArgs a{.out = rows,
                         .out_pos = out_pos.required<float>(end, width),
                         .a_pos = a_pos.required<float>(end, heads),
                         .dout = incoming.data,
                         .dout_stride = incoming.stride,
                         .delta = delta.required<float>(end, heads),
                         .ds_dst = ds_dst.required<float>(end, heads),
                         .width = width,
                         .heads = heads,
                         .range = range,
                         .slope = float(slope)};
  nb::gil_scoped_release released;
  (incoming.bf16 ? chosen().attention_grad_dst_bf16 : chosen().attention_grad_dst)(a);
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention", &py_attention, "indptr"_a, "indices"_a, "z"_a, "s_src"_a, "s_dst"_a, "out"_a, "begin"_a, "end"_a,
        "heads"_a, "slope"_a, "lse"_a.none(), "out_pos"_a.none(), "a_pos"_a.none(), "drop"_a.none(), "ids"_a.none());
  m.def("attention_grad_src", &py_attention_grad_src, "indptr_t"_a, "indices_t"_a, "z"_a, "s_src"_a, "s_dst"_a, "lse"_a,
        "delta"_a, "dout"_a, "dz"_a, "ds_src"_a, "begin"_a, "end"_a, "heads"_a, "slope"_a, "drop"_a.none(),
        "ids"_a.none(), "accumulate"_a);
  m.def("attention_grad_dst", &py_attention_grad_dst);
}

}  // namespace dorylus
