"""The gather: for every row of a graph, a reduction over the rows of its neighbours, and its gradients.

Also reductions of messages that lie in edge order (``segment_``), as an edge layer returns them, and operations on
whole rows: picked, added, converted to and from bfloat16.
"""

from dorylus.backends.native import _native
from dorylus.backends.native.types import Bf16, Floats, Ints, Offsets


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
    """Writes (or adds, with accumulate) the weighted sum of neighbours into rows begin:end of out.

    out[v] = row_scale[v] * sum over edges e = (v, u) of values[e] * col_scale[u] * x[u]; absent factors are 1.
    mean also divides by the number of edges; an empty row gives 0.
    """
    _native.spmm(indptr, indices, x, out, begin, end, values, row_scale, col_scale, mean, accumulate)


def spmm_max(indptr: Offsets, indices: Ints, x: Floats | Bf16, out: Floats, ties: Floats, begin: int, end: int) -> None:
    """Writes the columnwise maximum over a row's edges into out, and how many edges attain it into ties.

    An empty row gives 0, ties 1. A NaN among the neighbours comes out as NaN.
    """
    _native.spmm_max(indptr, indices, x, out, ties, begin, end)


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
    """The gradient of spmm_max, shared evenly among ties; rows of the transposed graph are the sources.

    dx[u] = sum over edges u -> v, in the columns where x[u] == out[v], of dout_per_tie[v] = dout[v] / ties[v].
    """
    _native.spmm_max_grad(indptr_t, indices_t, x, out, dout_per_tie, dx, begin, end, accumulate)


def spmm_outer(indptr: Offsets, indices: Ints, values: Floats, dz: Floats, dw: Floats, begin: int, end: int) -> None:
    """Adds values[e] * dz[row] to dw[indices[e]] for the edges of the rows: a sparse product's weight gradient."""
    _native.spmm_outer(indptr, indices, values, dz, dw, begin, end)


def gather_limit(indptr: Offsets, indices: Ints, x: Floats, begin: int, end: int) -> float:
    """Reads the rows that spmm would read, in the same order, and returns their total: what memory permits at best."""
    return _native.gather_limit(indptr, indices, x, begin, end)


def segment_sum(
    indptr: Offsets,
    messages: Floats,
    out: Floats,
    begin: int,
    end: int,
    *,
    row_scale: Floats | None = None,
    accumulate: bool = False,
) -> None:
    """Writes (or adds) row_scale[v] * the sum of v's messages into out[v]."""
    _native.segment_sum(indptr, messages, out, begin, end, row_scale, accumulate)


def segment_spread(
    indptr: Offsets, dout: Floats, dmessages: Floats, begin: int, end: int, *, row_scale: Floats | None = None
) -> None:
    """The gradient of segment_sum: every message of v gets row_scale[v] * dout[v]."""
    _native.segment_spread(indptr, dout, dmessages, begin, end, row_scale)


def segment_max(indptr: Offsets, messages: Floats, out: Floats, ties: Floats, begin: int, end: int) -> None:
    """Writes the columnwise maximum of v's messages and how many attain it; 0 and 1 where there are none."""
    _native.segment_max(indptr, messages, out, ties, begin, end)


def segment_max_grad(
    indptr: Offsets, messages: Floats, out: Floats, dout_per_tie: Floats, dmessages: Floats, begin: int, end: int
) -> None:
    """The gradient of segment_max: dout_per_tie[v] = dout[v] / ties[v] to the messages of v equal to out[v]."""
    _native.segment_max_grad(indptr, messages, out, dout_per_tie, dmessages, begin, end)


def segment_softmax(
    indptr: Offsets, scores: Floats, messages: Floats, out: Floats, lse: Floats, begin: int, end: int, *, heads: int
) -> None:
    """Writes out[v] = the sum of v's messages weighted by the softmax of their scores, and lse[v] = log sum exp."""
    _native.segment_softmax(indptr, scores, messages, out, lse, begin, end, heads)


def segment_softmax_grad(
    indptr: Offsets,
    scores: Floats,
    messages: Floats,
    out: Floats,
    lse: Floats,
    dout: Floats,
    dscores: Floats,
    dmessages: Floats,
    begin: int,
    end: int,
    *,
    heads: int,
) -> None:
    """The gradients of segment_softmax, with alpha = exp(score - lse[v]).

    dmessages = alpha * dout[v]; dscores = alpha * (<dout[v], message> - <dout[v], out[v]>), head by head.
    """
    _native.segment_softmax_grad(indptr, scores, messages, out, lse, dout, dscores, dmessages, begin, end, heads)


def gather_rows(x: Floats | Bf16, index: Ints, out: Floats) -> None:
    """Writes out[k] = x[index[k]]."""
    _native.gather_rows(x, index, out)


def scatter_add_rows(src: Floats, index: Ints, out: Floats) -> None:
    """Adds src[k] to out[index[k]], in the order of k."""
    _native.scatter_add_rows(src, index, out)


def to_bf16(x: Floats, out: Bf16, begin: int, end: int) -> None:
    """Writes the nearest bfloat16, ties to even; a NaN stays a NaN."""
    _native.to_bf16(x, out, begin, end)


def from_bf16(x: Bf16, out: Floats, begin: int, end: int) -> None:
    """Writes the float32 of every bfloat16; exact."""
    _native.from_bf16(x, out, begin, end)
