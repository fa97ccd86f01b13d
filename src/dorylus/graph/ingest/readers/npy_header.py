"""The header of an array in NumPy's format, which says where in the file each number lies."""

import io
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from dorylus.errors import DataError

MAGIC_BYTES = 64 << 10
_MOST_DIMENSIONS = 64  # of an array of NumPy's


class NpyHeader(NamedTuple):
    """Type, shape, and where the numbers begin."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    begin: int

    @property
    def num_bytes(self) -> int:
        """Of the numbers."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def read_header(file: IO[bytes], path: Path, what: str = "it") -> NpyHeader:
    """The header at the start of ``file``."""
    start = io.BytesIO(file.read(MAGIC_BYTES))
    try:
        version = npy_format.read_magic(start)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version} of the format")
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, fortran, dtype = read(start)
        if not all(0 <= size < 1 << 63 for size in shape) or len(shape) > _MOST_DIMENSIONS:
            raise ValueError("a shape that no array has")
    except (ValueError, TypeError, SyntaxError, RecursionError, OverflowError, TokenError) as error:
        raise DataError(
            f"cannot read {path} as NumPy's: {what} has no good header ({error}). Save it with np.save."
        ) from error
    return NpyHeader(dtype, shape, fortran, start.tell())
