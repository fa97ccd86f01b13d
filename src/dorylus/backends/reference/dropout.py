"""The reference's part for dropout: Philox4x32-10 as its authors state it."""

import numpy as np

from dorylus.backends.native.dropout import Dropout
from dorylus.backends.native.types import Array, Bf16, Floats, Ints, Offsets
from dorylus.backends.reference.gather import nearest_bf16, rows_of

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def philox(counter: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> list[Array]:
    """The four words at each counter."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c, np.uint64) for c in counter))
    for i in range(10):
        k0, k1 = np.uint64((key[0] + i * 0x9E3779B9) % 2**32), np.uint64((key[1] + i * 0xBB67AE85) % 2**32)
        first, second = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (second >> _32) ^ c1 ^ k0, second & _LOW, (first >> _32) ^ c3 ^ k1, first & _LOW
    return [c0, c1, c2, c3]


def _kept(drop: Dropout, first: Array, second: Array, third: Array, word: Array) -> Array:
    """1 / (1 - p) where the word at the counter keeps, 0 where it drops."""
    unsigned = [np.asarray(c).astype(np.int64).astype(np.uint64) & _LOW for c in (first, second, third)]
    words = philox((*unsigned, np.uint64(drop.seed >> 32)), (drop.seed % 2**32, drop.epoch))  # type: ignore[arg-type]
    threshold = min(round(drop.p * 2**32), 2**32 - 1)
    return np.where(np.choose(word, words) >= threshold, np.float32(1 / (1 - drop.p)), np.float32(0))


def kept_columns(drop: Dropout, ids: Ints, columns: Array) -> Array:
    """The factor of every element (vertex, column)."""
    return _kept(drop, ids, columns >> 2, np.asarray(drop.layer), columns & 3)


def kept_edges(drop: Dropout, destinations: Ints, sources: Ints, heads: int) -> Array:
    """The factor of every (edge, head)."""
    head = np.arange(heads)
    third = 0x80000000 | drop.layer << 8 | head >> 2
    word = np.broadcast_to(head & 3, (len(sources), heads))
    return _kept(drop, destinations[:, None], sources[:, None], third, word)


def dropout(
    x: Floats, out: Floats | Bf16, ids: Ints, begin: int, end: int, *, drop: Dropout, first_column: int = 0
) -> None:
    """See :func:`dorylus.backends.native.dropout`."""
    columns = np.broadcast_to(first_column + np.arange(x.shape[1]), (end - begin, x.shape[1]))
    factor = kept_columns(drop, ids[begin:end, None], columns)
    dropped = np.where(factor > 0, x[begin:end] * factor, np.float32(0))
    out[begin:end] = nearest_bf16(dropped) if out.dtype == np.uint16 else dropped


def dropout_csr(
    indptr: Offsets,
    indices: Ints,
    values: Floats,
    out_values: Floats,
    ids: Ints,
    begin: int,
    end: int,
    *,
    drop: Dropout,
) -> None:
    """See :func:`dorylus.backends.native.dropout_csr`."""
    for v, e in rows_of(indptr, begin, end):
        out_values[e] = values[e] * kept_columns(drop, np.full(len(indices[e]), ids[v]), indices[e])
