// Arguments that several kernels share: a graph with a row range, and a dropout stream.
#pragma once

#include "buffer.h"

namespace dorylus {

// A CSR argument and its row range. Offsets are checked at the ends of the range only: a call must cost microseconds.
class GraphRows {
 public:
  GraphRows(nb::handle indptr, nb::handle indices, int64_t begin, int64_t end);
  // A graph whose messages lie in edge order, from the first edge of the range on.
  GraphRows(nb::handle indptr, int64_t begin, int64_t end);

  Csr csr{};
  Range range{};
  int64_t num_rows = 0;   // of the whole graph
  int64_t num_edges = 0;  // of the whole graph; with messages, of the range

 private:
  void read_indptr(int64_t begin, int64_t end);
  Array indptr_, indices_;
};

// A matrix that may be float32 or bfloat16 (held as uint16).
struct Source {
  Source(const Array& array, int64_t num_rows, int64_t num_cols = -1);
  const void* data;
  int64_t stride, width;
  bool bf16;
};

// A float32 or bfloat16 matrix to write.
struct Target {
  Target(const Array& array, int64_t num_rows, int64_t num_cols);
  void* data;
  int64_t stride;
  bool bf16;
};

// A dropout and the original ids it is keyed by; None drops nothing. Comes as (p, seed, epoch, layer) from the Python
// face.
class Drop {
 public:
  Drop(nb::handle drop, nb::handle ids, int64_t num_ids);
  const DropStream* stream() const { return present_ ? &stream_ : nullptr; }
  const int32_t* ids() const { return id_data_; }

 private:
  Array ids_;
  DropStream stream_{};
  const int32_t* id_data_ = nullptr;
  bool present_;
};

// Heads must share the columns evenly.
void check_heads(int64_t heads, int64_t width, const char* name);

}  // namespace dorylus
