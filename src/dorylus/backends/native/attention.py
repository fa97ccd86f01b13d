"""Attention, fused: scores, leaky ReLU, softmax over the in-edges of a vertex, weighted sum. Nothing per edge is kept.

Columns are laid out head by head: z has heads * C columns, head h owns h * C .. (h + 1) * C - 1. Scores and sums of
weights have one column a head.
"""

from dorylus.backends.native import _native
from dorylus.backends.native.dropout import Dropout, key
from dorylus.backends.native.types import Bf16, Floats, Ints, Offsets


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
    """Writes out[v] = the sum over edges (v, u) of alpha * keep / (1 - p) * z[u], rows begin:end.

    alpha is the softmax over v's edges of logit = leaky_relu(s_dst[v] + s_src[u], slope). For training also lse, the
    log of the sum of exp(logit), so that alpha = exp(logit - lse); out_pos, the part of out from edges whose score
    is positive before the leaky ReLU; and a_pos, the sum of alpha over those: all three, or none (evaluation).
    An empty row gives 0 everywhere.
    """
    _native.attention(
        indptr, indices, z, s_src, s_dst, out, begin, end, heads, slope, lse, out_pos, a_pos, key(drop), ids
    )


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
    """Writes delta[v, h] = <dout, out> and ds_dst = (1 - slope) * (<dout, out_pos> - delta * a_pos).

    Why: ds_dst = sum of alpha * (dalpha - delta) * leaky', and the part of leaky' that is slope everywhere sums to 0.
    """
    _native.attention_grad_dst(out, out_pos, a_pos, dout, delta, ds_dst, begin, end, heads, slope)


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
    """Writes (or adds) the gradients of sources u over their out-edges u -> v: the rows of the transposed graph.

    dz[u] = sum of alpha * keep / (1 - p) * dout[v];
    ds_src[u] = sum of alpha * (keep / (1 - p) * <dout[v], z[u]> - delta[v]) * leaky'.
    """
    _native.attention_grad_src(
        indptr_t,
        indices_t,
        z,
        s_src,
        s_dst,
        lse,
        delta,
        dout,
        dz,
        ds_src,
        begin,
        end,
        heads,
        slope,
        key(drop),
        ids,
        accumulate,
    )
