"""Whole rows: picked, added, converted to and from bfloat16."""

from dorylus.kernels import _native
from dorylus.kernels._arrays import Bf16, Floats, Ints


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
