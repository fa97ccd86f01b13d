"""The gather: for every row of a graph, a reduction over the rows of its neighbours; and the gradients of these."""

from dorylus.kernels import _native
from dorylus.kernels._arrays import Bf16, Floats, Ints, Offsets


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
