// One function a family of kernels: each adds its Python functions to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace dorylus {

void bind_csr(nanobind::module_& m);
void bind_spmm(nanobind::module_& m);
void bind_max(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_segment(nanobind::module_& m);
void bind_rows(nanobind::module_& m);
void bind_dropout(nanobind::module_& m);
void bind_partition(nanobind::module_& m);
void bind_external(nanobind::module_& m);
void bind_edge_text(nanobind::module_& m);
void bind_id_table(nanobind::module_& m);
void bind_files(nanobind::module_& m);

}  // namespace dorylus
