#include "arguments.h"

#include <cmath>

namespace dorylus {

GraphRows::GraphRows(nb::handle indptr, nb::handle indices, int64_t begin, int64_t end)
    : indptr_(indptr, "indptr"), indices_(indices, "indices") {
  read_indptr(begin, end);
  csr.indices = indices_.required<int32_t>(-1);
  num_edges = indices_.rows();
  if (csr.indptr[range.end] > num_edges)
    bad_value("indptr reaches edge " + std::to_string(csr.indptr[range.end]) + ", but indices has " +
              std::to_string(num_edges));
}

GraphRows::GraphRows(nb::handle indptr, int64_t begin, int64_t end)
    : indptr_(indptr, "indptr"), indices_(nb::none(), "indices") {
  read_indptr(begin, end);
  num_edges = csr.indptr[range.end] - csr.indptr[range.begin];
}

void GraphRows::read_indptr(int64_t begin, int64_t end) {
  csr.indptr = indptr_.required<int64_t>(-1);
  if (indptr_.rows() == 0) bad_value("indptr must have one more element than there are rows, not 0");
  num_rows = indptr_.rows() - 1;
  range = checked_range(begin, end, num_rows);
  if (csr.indptr[begin] < 0 || csr.indptr[begin] > csr.indptr[end]) bad_value("indptr must start at 0 and never fall");
}

Source::Source(const Array& array, int64_t num_rows, int64_t num_cols) : bf16(array.holds<uint16_t>()) {
  if (bf16) {
    Rows<uint16_t> rows = array.matrix<uint16_t>(num_rows, num_cols);
    data = rows.data, stride = rows.stride;
  } else {
    Rows<float> rows = array.required<float>(num_rows, num_cols);
    data = rows.data, stride = rows.stride;
  }
  width = array.cols();
}

Target::Target(const Array& array, int64_t num_rows, int64_t num_cols) {
  Source source(array, num_rows, num_cols);
  data = const_cast<void*>(source.data), stride = source.stride, bf16 = source.bf16;
}

Drop::Drop(nb::handle drop, nb::handle ids, int64_t num_ids) : ids_(ids, "ids"), present_(!drop.is_none()) {
  if (!present_) return;
  double p = nb::cast<double>(drop[0]), threshold = std::nearbyint(p * 4294967296.0);
  stream_ = {.threshold = uint32_t(threshold < 4294967295.0 ? threshold : 4294967295.0),
             .scale = float(1.0 / (1.0 - p)),
             .seed = nb::cast<uint64_t>(drop[1]),
             .epoch = nb::cast<uint32_t>(drop[2]),
             .layer = nb::cast<uint32_t>(drop[3])};
  id_data_ = ids_.required<int32_t>(-1);
  if (ids_.rows() < num_ids)
    bad_value("ids must have at least " + std::to_string(num_ids) + " elements, not " + std::to_string(ids_.rows()));
}

void check_heads(int64_t heads, int64_t width, const char* name) {
  if (heads < 1 || width % heads != 0)
    bad_value(std::string(name) + " has " + std::to_string(width) + " columns, which heads=" + std::to_string(heads) +
              " cannot share evenly");
}

}  // namespace dorylus
