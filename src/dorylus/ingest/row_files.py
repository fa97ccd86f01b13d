"""Files and arrays with a row a vertex, read block by block: what features, labels and splits come in."""

import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dorylus.errors import DataError
from dorylus.graph import AnyArray
from dorylus.ingest.readers.edge_file import Unchanged

BLOCK_BYTES = 1 << 22


class RowFile(Protocol):
    """Rows of numbers, in order."""

    @property
    def path(self) -> Path | str:
        """Where they come from, for errors."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def blocks(self) -> Iterator[AnyArray]:
        """The rows, some at a time."""


def open_rows(rows: Any, what: str, memory_bytes: int | None = None) -> RowFile:
    """The rows of a .npy or .parquet file, or of an array; ``what`` they are is for the error.

    A file whose rows cannot be read one by one in ``memory_bytes`` is a ConfigError.
    """
    if not isinstance(rows, str | PathLike):
        return ArrayRows(rows, what)
    path = Path(rows)
    if path.suffix not in (".npy", ".parquet"):
        raise DataError(f"{what} are to come from {path}: give a .npy or .parquet file with a row a vertex.")
    try:
        if path.suffix == ".npy":
            return NpyRows(path, what)
        from dorylus.ingest.parquet_rows import ParquetRows

        return ParquetRows(path, what, memory_bytes)
    except OSError as error:
        raise DataError(f"cannot read {what} from {path}: {error.strerror or error}.") from error


def number_cure(what: str, dtype: np.dtype[Any], otherwise: str) -> str:
    """How to make numbers of what is of another type."""
    if what == "labels" and dtype.kind in "OSTU":
        return "number the classes from 0 (np.unique(labels, return_inverse=True)[1] does it)."
    return otherwise


class ArrayRows:
    """The rows of an array in memory."""

    def __init__(self, rows: Any, what: str) -> None:
        self._array = np.asarray(rows)
        self.path, self.shape, self.dtype = f"the array {what}", self._array.shape, self._array.dtype
        if self.dtype.kind not in "biuf" or not self.shape:
            cure = "give an array of numbers, or a .npy or .parquet file, with a row a vertex."
            raise DataError(
                f"{what} are given as {type(rows).__name__}, {self.dtype} of shape {list(self.shape)}: "
                f"{number_cure(what, self.dtype, cure) if self.shape else cure}"
            )

    def blocks(self) -> Iterator[AnyArray]:
        """The rows, some at a time."""
        step = max(1, BLOCK_BYTES * len(self._array) // max(self._array.nbytes, 1))
        for begin in range(0, len(self._array), step):
            yield self._array[begin : begin + step]


class NpyRows:
    """The rows of a .npy file, read past the page cache's memory: what was read is dropped from it."""

    def __init__(self, path: Path, what: str) -> None:
        self.path, self._state = path, Unchanged(path)
        with open(path, "rb") as file:
            self.shape, self.dtype = _header(path, file, what)
            self._start = file.tell()
        wanted = self._start + int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize
        if path.stat().st_size < wanted:
            raise DataError(f"{path} has {path.stat().st_size:,} bytes instead of {wanted:,}: write it again.")

    def blocks(self) -> Iterator[AnyArray]:
        """The rows, some at a time."""
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        step = max(1, BLOCK_BYTES // max(row_bytes, 1))
        with open(self.path, "rb", buffering=0) as file:
            for begin in range(0, self.shape[0], step):
                count = min(step, self.shape[0] - begin)
                offset = self._start + begin * row_bytes
                raw = _read(self.path, file.fileno(), count * row_bytes, offset)
                yield np.frombuffer(raw, self.dtype).reshape(count, *self.shape[1:])
                os.posix_fadvise(file.fileno(), 0, offset + len(raw), os.POSIX_FADV_DONTNEED)
        self._state.check()


def _header(path: Path, file: Any, what: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except ValueError as error:
        raise DataError(f"{path} is not a .npy file: {error}. Write it with np.save.") from error
    if dtype.kind not in "biuf" or not shape or (fortran and len(shape) > 1):
        found = f"{dtype} of shape {list(shape)}" + (", column by column" if fortran and len(shape) > 1 else "")
        cure = "save numbers row by row, np.save(path, np.ascontiguousarray(array))."
        raise DataError(f"{path} holds {found}: {number_cure(what, dtype, cure)}")
    return shape, dtype


def _read(path: Path, descriptor: int, count: int, offset: int) -> bytearray:
    raw = bytearray(count)
    with memoryview(raw) as view:
        done = 0
        while done < count:
            got = os.preadv(descriptor, [view[done:]], offset + done)
            if not got:
                raise DataError(f"{path} ends at byte {offset + done:,}: it was cut short while it was read.")
            done += got
    return raw
