"""Reductions of messages kept in edge order, as an edge layer gives them back, and their gradients.

messages[0] belongs to edge indptr[begin], the first of the row range.
"""

from dorylus.kernels import _native
from dorylus.kernels._arrays import Floats, Offsets


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
