"""The reference's part for attention and for messages in edge order."""

import numpy as np

from dorylus.backends.native.dropout import Dropout
from dorylus.backends.native.types import Array, Bf16, Floats, Ints, Offsets
from dorylus.backends.reference.dropout import kept_edges
from dorylus.backends.reference.gather import f64, maximum, rows_of, write


def _softmax(logits_EH: Array) -> tuple[Array, Array]:
    """The softmax over the edges, and the logarithm of its denominator."""
    largest = logits_EH.max(axis=0)
    weight = np.exp(logits_EH - largest)
    return weight / weight.sum(axis=0), largest + np.log(weight.sum(axis=0))


def _by_head(x: Array, heads: int) -> Array:
    """Columns split as [..., heads, C]."""
    return f64(x).reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def _leaky(x: Array, slope: float) -> Array:
    return np.where(x > 0, x, slope * x)


def attention(
    indptr: Offsets,
    indices: Ints,
    z: Floats | Bf16,
    s_src: Floats,
    s_dst: Floats,
    out: Floats,
    begin: int,
    end: int,
    *,
    heads: int,
    slope: float = 0.2,
    lse: Floats | None = None,
    out_pos: Floats | None = None,
    a_pos: Floats | None = None,
    drop: Dropout | None = None,
    ids: Ints | None = None,
) -> None:
    """See :func:`dorylus.backends.native.attention`."""
    for v, e in rows_of(indptr, begin, end):
        u = indices[e]
        score = f64(s_src[u]) + f64(s_dst[v])
        positive = score > 0
        alpha, log_sum = _softmax(_leaky(score, slope)) if len(u) else (score, np.zeros(heads))
        factor = alpha if drop is None or ids is None else alpha * kept_edges(drop, ids[[v] * len(u)], ids[u], heads)
        message = _by_head(z[u], heads)
        out[v] = np.einsum("eh,ehc->hc", factor, message).ravel()
        if lse is not None and out_pos is not None and a_pos is not None:
            lse[v] = log_sum
            out_pos[v] = np.einsum("eh,ehc->hc", factor * positive, message).ravel()
            a_pos[v] = (alpha * positive).sum(axis=0)


def attention_grad_dst(
    out: Floats,
    out_pos: Floats,
    a_pos: Floats,
    dout: Floats | Bf16,
    delta: Floats,
    ds_dst: Floats,
    begin: int,
    end: int,
    *,
    heads: int,
    slope: float = 0.2,
) -> None:
    """See :func:`dorylus.backends.native.attention_grad_dst`."""
    r = slice(begin, end)
    inner = np.sum(_by_head(dout[r], heads) * _by_head(out[r], heads), axis=2)
    inner_pos = np.sum(_by_head(dout[r], heads) * _by_head(out_pos[r], heads), axis=2)
    delta[r] = inner
    ds_dst[r] = (1 - slope) * (inner_pos - inner * a_pos[r])


def attention_grad_src(
    indptr_t: Offsets,
    indices_t: Ints,
    z: Floats | Bf16,
    s_src: Floats,
    s_dst: Floats,
    lse: Floats,
    delta: Floats,
    dout: Floats | Bf16,
    dz: Floats,
    ds_src: Floats,
    begin: int,
    end: int,
    *,
    heads: int,
    slope: float = 0.2,
    drop: Dropout | None = None,
    ids: Ints | None = None,
    accumulate: bool = False,
) -> None:
    """See :func:`dorylus.backends.native.attention_grad_src`."""
    for u, e in rows_of(indptr_t, begin, end):
        v = indices_t[e]
        score = f64(s_src[u]) + f64(s_dst[v])
        alpha = np.exp(_leaky(score, slope) - f64(lse[v]))
        keep = 1.0 if drop is None or ids is None else kept_edges(drop, ids[v], ids[[u] * len(v)], heads)
        incoming = _by_head(dout[v], heads)
        dalpha = keep * np.einsum("ehc,hc->eh", incoming, _by_head(z[u], heads))
        steepness = np.where(score > 0, 1.0, slope)
        write(dz, u, np.einsum("eh,ehc->hc", alpha * keep, incoming).ravel(), accumulate)
        write(ds_src, u, np.sum(alpha * (dalpha - f64(delta[v])) * steepness, axis=0), accumulate)


def _messages(indptr: Offsets, begin: int, e: slice) -> slice:
    """Where the edges of a row lie among the messages of a range."""
    return slice(e.start - int(indptr[begin]), e.stop - int(indptr[begin]))


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
    """See :func:`dorylus.backends.native.segment_sum`."""
    for v, e in rows_of(indptr, begin, end):
        total = f64(messages[_messages(indptr, begin, e)]).sum(axis=0)
        write(out, v, total if row_scale is None else total * row_scale[v], accumulate)


def segment_spread(
    indptr: Offsets, dout: Floats, dmessages: Floats, begin: int, end: int, *, row_scale: Floats | None = None
) -> None:
    """See :func:`dorylus.backends.native.segment_spread`."""
    for v, e in rows_of(indptr, begin, end):
        dmessages[_messages(indptr, begin, e)] = dout[v] if row_scale is None else dout[v] * row_scale[v]


def segment_max(indptr: Offsets, messages: Floats, out: Floats, ties: Floats, begin: int, end: int) -> None:
    """See :func:`dorylus.backends.native.segment_max`."""
    for v, e in rows_of(indptr, begin, end):
        out[v], ties[v] = maximum(messages[_messages(indptr, begin, e)])


def segment_max_grad(
    indptr: Offsets, messages: Floats, out: Floats, dout_per_tie: Floats, dmessages: Floats, begin: int, end: int
) -> None:
    """See :func:`dorylus.backends.native.segment_max_grad`."""
    for v, e in rows_of(indptr, begin, end):
        at = _messages(indptr, begin, e)
        dmessages[at] = np.where(messages[at] == out[v], dout_per_tie[v], 0)


def segment_softmax(
    indptr: Offsets, scores: Floats, messages: Floats, out: Floats, lse: Floats, begin: int, end: int, *, heads: int
) -> None:
    """See :func:`dorylus.backends.native.segment_softmax`."""
    for v, e in rows_of(indptr, begin, end):
        at = _messages(indptr, begin, e)
        alpha, log_sum = _softmax(f64(scores[at])) if e.stop > e.start else (scores[at], np.zeros(heads))
        out[v] = np.einsum("eh,ehc->hc", alpha, _by_head(messages[at], heads)).ravel()
        lse[v] = log_sum


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
    """See :func:`dorylus.backends.native.segment_softmax_grad`."""
    for v, e in rows_of(indptr, begin, end):
        at = _messages(indptr, begin, e)
        alpha = np.exp(f64(scores[at]) - f64(lse[v]))
        incoming = _by_head(dout[v], heads)
        dalpha = np.einsum("hc,ehc->eh", incoming, _by_head(messages[at], heads))
        dscores[at] = alpha * (dalpha - np.sum(incoming * _by_head(out[v], heads), axis=1))
        dmessages[at] = np.einsum("eh,hc->ehc", alpha, incoming).reshape(dmessages[at].shape)
