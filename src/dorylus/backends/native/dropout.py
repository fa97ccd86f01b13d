"""Dropout from a counter-based generator: the mask is a function of what is dropped, not of how the work is cut."""

from dataclasses import dataclass

from dorylus.backends.native import _native
from dorylus.backends.native.types import Bf16, Floats, Ints, Offsets


@dataclass(frozen=True)
class Dropout:
    """One dropout of a run: probability p, keyed by (seed, epoch, layer).

    A word of Philox4x32-10, keyed by (seed & 0xffffffff, epoch), decides each element: kept iff it is at least
    round(p * 2**32). For column c of the vertex with original id i it is word c & 3 at counter
    (i, c >> 2, layer, seed >> 32); for head h of the edge from j to i, word h & 3 at counter
    (i, j, 0x80000000 | layer << 8 | h >> 2, seed >> 32).
    """

    p: float
    seed: int
    epoch: int
    layer: int

    def __post_init__(self) -> None:
        if not 0 <= self.p < 1:
            raise ValueError(f"dropout p={self.p}, but the share dropped must lie in [0, 1)")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"dropout seed={self.seed}, but a seed must lie in [0, 2**64)")
        if not 0 <= self.epoch < 2**32:
            raise ValueError(f"dropout epoch={self.epoch}, but an epoch must lie in [0, 2**32)")
        if not 0 <= self.layer < 2**23:
            raise ValueError(f"dropout layer={self.layer}, but a layer must lie in [0, 2**23)")


def key(drop: Dropout | None) -> tuple[float, int, int, int] | None:
    """What the native side reads of a dropout."""
    return None if drop is None else (drop.p, drop.seed, drop.epoch, drop.layer)


def dropout(
    x: Floats, out: Floats | Bf16, ids: Ints, begin: int, end: int, *, drop: Dropout, first_column: int = 0
) -> None:
    """Writes x / (1 - p) where kept and 0 where dropped into rows begin:end of out, which may be x itself.

    ids holds the original id of every row. Where x are some columns of a matrix, first_column, a multiple of 4, is the
    number of the first. The gradient is the same call on the gradient.
    """
    _native.dropout(x, out, ids, begin, end, (drop.p, drop.seed, drop.epoch, drop.layer), first_column)


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
    """The same mask on the non-zeros of a sparse feature matrix: equals dropout of the dense one."""
    _native.dropout_csr(
        indptr, indices, values, out_values, ids, begin, end, (drop.p, drop.seed, drop.epoch, drop.layer)
    )
