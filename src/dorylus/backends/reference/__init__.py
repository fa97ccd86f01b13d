"""Every kernel in plain NumPy: slow, obvious, and the definition the native ones are tested against.

Names and signatures are those of ``dorylus.backends.native``. Sums are taken in float64.
"""

import numpy as np

from dorylus.backends.native.dropout import Dropout
from dorylus.backends.native.edge_input import EdgeBlock, TextEdges, TextFault, TextForm, WeightClash
from dorylus.backends.native.types import Bf16, Floats, Ints, Offsets
from dorylus.backends.reference.attention import (
    attention,
    attention_grad_dst,
    attention_grad_src,
    segment_max,
    segment_max_grad,
    segment_softmax,
    segment_softmax_grad,
    segment_spread,
    segment_sum,
)
from dorylus.backends.reference.csr import (
    csr_build,
    csr_coalesce,
    csr_count,
    csr_is_symmetric,
    csr_loops,
    csr_reach,
    csr_select,
    csr_select_transpose,
    csr_transpose,
    csr_with_loops,
)
from dorylus.backends.reference.dropout import dropout, dropout_csr, kept_edges
from dorylus.backends.reference.edge_input import ReferenceEdgeSort, ReferenceNameIds, ReferenceNumberIds, edge_text
from dorylus.backends.reference.partition import (
    partition_across,
    partition_deal,
    partition_held,
    partition_merge,
    partition_place,
)
from dorylus.backends.reference.rows import f64, maximum, nearest_bf16, rows_of, write

__all__ = [
    "Dropout",
    "EdgeBlock",
    "ReferenceEdgeSort",
    "ReferenceNameIds",
    "ReferenceNumberIds",
    "TextEdges",
    "TextFault",
    "TextForm",
    "WeightClash",
    "attention",
    "attention_grad_dst",
    "attention_grad_src",
    "csr_build",
    "csr_coalesce",
    "csr_count",
    "csr_is_symmetric",
    "csr_loops",
    "csr_reach",
    "csr_select",
    "csr_select_transpose",
    "csr_transpose",
    "csr_with_loops",
    "dropout",
    "dropout_csr",
    "edge_text",
    "from_bf16",
    "gather_limit",
    "gather_rows",
    "kept_edges",
    "partition_across",
    "partition_deal",
    "partition_held",
    "partition_merge",
    "partition_place",
    "scatter_add_rows",
    "segment_max",
    "segment_max_grad",
    "segment_softmax",
    "segment_softmax_grad",
    "segment_spread",
    "segment_sum",
    "spmm",
    "spmm_max",
    "spmm_max_grad",
    "spmm_outer",
    "to_bf16",
]


def spmm(
    indptr: Offsets,
    indices: Ints,
    x: Floats | Bf16,
    out: Floats,
    begin: int,
    end: int,
    *,
    values: Floats | None = None,
    row_scale: Floats | None = None,
    col_scale: Floats | None = None,
    mean: bool = False,
    accumulate: bool = False,
) -> None:
    """See :func:`dorylus.backends.native.spmm`."""
    for v, e in rows_of(indptr, begin, end):
        neighbours = indices[e]
        weight = np.ones(len(neighbours)) if values is None else f64(values[e])
        if col_scale is not None:
            weight = weight * col_scale[neighbours]
        total = weight @ f64(x[neighbours])
        if row_scale is not None:
            total = total * row_scale[v]
        if mean and len(neighbours):
            total = total / len(neighbours)
        write(out, v, total, accumulate)


def spmm_max(indptr: Offsets, indices: Ints, x: Floats | Bf16, out: Floats, ties: Floats, begin: int, end: int) -> None:
    """See :func:`dorylus.backends.native.spmm_max`."""
    for v, e in rows_of(indptr, begin, end):
        out[v], ties[v] = maximum(f64(x[indices[e]]))


def spmm_max_grad(
    indptr_t: Offsets,
    indices_t: Ints,
    x: Floats | Bf16,
    out: Floats,
    dout_per_tie: Floats,
    dx: Floats,
    begin: int,
    end: int,
    *,
    accumulate: bool = False,
) -> None:
    """See :func:`dorylus.backends.native.spmm_max_grad`."""
    for u, e in rows_of(indptr_t, begin, end):
        destinations = indices_t[e]
        attained = f64(x[u]) == f64(out[destinations])
        write(dx, u, np.where(attained, f64(dout_per_tie[destinations]), 0.0).sum(axis=0), accumulate)


def spmm_outer(indptr: Offsets, indices: Ints, values: Floats, dz: Floats, dw: Floats, begin: int, end: int) -> None:
    """See :func:`dorylus.backends.native.spmm_outer`."""
    for v, e in rows_of(indptr, begin, end):
        np.add.at(dw, indices[e], values[e][:, None] * dz[v])


def gather_limit(indptr: Offsets, indices: Ints, x: Floats, begin: int, end: int) -> float:
    """See :func:`dorylus.backends.native.gather_limit`."""
    return float(f64(x[indices[indptr[begin] : indptr[end]]]).sum())


def gather_rows(x: Floats | Bf16, index: Ints, out: Floats) -> None:
    """See :func:`dorylus.backends.native.gather_rows`."""
    out[: len(index)] = f64(x[index])


def scatter_add_rows(src: Floats, index: Ints, out: Floats) -> None:
    """See :func:`dorylus.backends.native.scatter_add_rows`."""
    for k, row in enumerate(index):
        out[row] += src[k]


def to_bf16(x: Floats, out: Bf16, begin: int, end: int) -> None:
    """See :func:`dorylus.backends.native.to_bf16`."""
    out[begin:end] = nearest_bf16(x[begin:end])


def from_bf16(x: Bf16, out: Floats, begin: int, end: int) -> None:
    """See :func:`dorylus.backends.native.from_bf16`."""
    out[begin:end] = f64(x[begin:end])
