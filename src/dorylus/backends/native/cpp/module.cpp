// The Python module: kernels take and give NumPy arrays, check them once, and run without the interpreter lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "dispatch.h"

NB_MODULE(_native, m) {
  m.def("isa", [] { return std::string(dorylus::chosen().name); });
  m.def("available", &dorylus::available);
  m.def("choose", &dorylus::choose);
  dorylus::bind_csr(m);
  dorylus::bind_spmm(m);
  dorylus::bind_max(m);
  dorylus::bind_attention(m);
  dorylus::bind_segment(m);
  dorylus::bind_rows(m);
  dorylus::bind_dropout(m);
  dorylus::bind_partition(m);
  dorylus::bind_external(m);
  dorylus::bind_edge_text(m);
  dorylus::bind_id_table(m);
  dorylus::bind_files(m);
}
