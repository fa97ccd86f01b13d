"""Files and arrays with one row per vertex (features, labels, splits), read block by block."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dorylus.errors import DataError
from dorylus.graph import AnyArray
from dorylus.ingest.readers.arrow import naming_file
from dorylus.ingest.readers.input_file import COPIES, UncachedFile, UnchangedFile
from dorylus.process_memory import resident_bytes

BLOCK_BYTES = 1 << 22


class RowFile(Protocol):
    """Rows of numbers, in order."""

    @property
    def path(self) -> Path | str:
        """The source of the rows, for error messages."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def blocks(self) -> Iterator[AnyArray]:
        """The rows, block by block."""


def open_rows(rows: Any, what: str, memory_bytes: int | None = None) -> RowFile:
    """The rows of a .npy or .parquet file, or of an array; ``what`` names them in error messages.

    A file whose rows cannot be read one by one in ``memory_bytes`` is a ConfigError.
    """
    if isinstance(rows, ComputedRows):
        return rows
    if not isinstance(rows, str | PathLike):
        return ArrayRows(rows, what)
    path = Path(rows)
    if path.suffix not in (".npy", ".parquet"):
        raise DataError(f"{what} cannot be read from {path}: give a .npy or .parquet file with one row per vertex.")
    try:
        if path.suffix == ".npy":
            return NpyRows(path, what)
        return ParquetRows(path, what, memory_bytes)
    except OSError as error:
        raise DataError(f"cannot read {what} from {path}: {error.strerror or error}.") from error


def number_cure(what: str, dtype: np.dtype[Any], otherwise: str) -> str:
    """The cure for values of a type that is not numeric."""
    if what == "labels" and dtype.kind in "OSTU":
        return "number the classes from 0 (np.unique(labels, return_inverse=True)[1] does it)."
    return otherwise


class ArrayRows:
    """The rows of an array in memory."""

    def __init__(self, rows: Any, what: str) -> None:
        self._array = np.asarray(rows)
        self.path, self.shape, self.dtype = f"the array {what}", self._array.shape, self._array.dtype
        if self.dtype.kind not in "biuf" or not self.shape:
            cure = "give an array of numbers, or a .npy or .parquet file, with one row per vertex."
            raise DataError(
                f"{what} are given as {type(rows).__name__}, {self.dtype} of shape {list(self.shape)}: "
                f"{number_cure(what, self.dtype, cure) if self.shape else cure}"
            )

    def blocks(self) -> Iterator[AnyArray]:
        """The rows, block by block."""
        step = max(1, BLOCK_BYTES * len(self._array) // max(self._array.nbytes, 1))
        for begin in range(0, len(self._array), step):
            yield self._array[begin : begin + step]


@dataclass(eq=False)
class ComputedRows:
    """Rows of numbers computed from the batches of a table: a ``RowFile``; ``names`` of classes or features."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    resident_bytes: int
    compute: Callable[[], Iterator[AnyArray]]
    names: tuple[str, ...] = ()

    def blocks(self) -> Iterator[AnyArray]:
        """The rows, block by block."""
        return self.compute()


class NpyRows:
    """The rows of a .npy file; pages are dropped from the page cache after they are read."""

    def __init__(self, path: Path, what: str) -> None:
        self.path, self._state = path, UnchangedFile(path)
        with open(path, "rb") as file:
            self.shape, self.dtype = _header(path, file, what)
            self._start = file.tell()
        expected = self._start + int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize
        if path.stat().st_size < expected:
            raise DataError(f"{path} has {path.stat().st_size:,} bytes instead of {expected:,}: write it again.")

    def blocks(self) -> Iterator[AnyArray]:
        """The rows, block by block."""
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
        content = f"{dtype} of shape {list(shape)}" + (", column by column" if fortran and len(shape) > 1 else "")
        cure = "save numbers row by row, np.save(path, np.ascontiguousarray(array))."
        raise DataError(f"{path} holds {content}: {number_cure(what, dtype, cure)}")
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


PARQUET_BLOCK_ROWS = 1 << 14
PARQUET_BUFFER_BYTES = 1 << 24  # of all columns together: each has a buffer of its own


class ParquetRows:
    """The rows of a .parquet file: [N] for one column of numbers, [N, F] for several or for one of lists.

    ``resident_bytes`` is the size of the process while rows are read; a ConfigError if reading the first row would
    exceed ``memory_bytes``.
    """

    def __init__(self, path: Path, what: str, memory_bytes: int | None = None) -> None:
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ImportError as error:
            raise DataError(f'reading {path} needs pyarrow: pip install "dorylus[parquet]".') from error
        self.path, self._state = path, UnchangedFile(path)
        self._width: int | None = None  # length of the lists, once the first was read
        try:
            columns = len(parquet.read_metadata(path).schema)
            # No read-ahead: it would hold whole row groups.
            buffer_bytes = max(4096, min(1 << 20, PARQUET_BUFFER_BYTES // max(columns, 1)))
            before = resident_bytes() - arrow.total_allocated_bytes()
            raw = UncachedFile(path, memory_bytes)
            source = arrow.PythonFile(raw, mode="r")
            self._file: Any = parquet.ParquetFile(
                source, buffer_size=buffer_bytes, pre_buffer=False, page_checksum_verification=True
            )
            batches = self._file.iter_batches(batch_size=1, use_threads=False)
            first = next(batches, None)
            # One page of every column is in memory now, as at any row; the next page is read beside them.
            held = before + arrow.total_allocated_bytes() + COPIES * raw.largest
            self.resident_bytes = max(resident_bytes(), held)
            raw.limit = None
        except arrow.ArrowInvalid as error:
            raise DataError(f"{path} is not a Parquet file: {error}.") from error
        sample = self._array(first) if first is not None else np.empty(0, np.float32)
        self.shape: tuple[int, ...] = (self._file.metadata.num_rows, *sample.shape[1:])
        self.dtype = sample.dtype
        if self.dtype.kind not in "biuf":
            cure = "its columns must be numbers, or one column lists of numbers."
            raise DataError(f"{path} holds {self.dtype}: {number_cure(what, self.dtype, cure)}")

    def blocks(self) -> Iterator[AnyArray]:
        """The rows, block by block."""
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        step, first = max(1, min(PARQUET_BLOCK_ROWS, BLOCK_BYTES // max(row_bytes, 1))), 0
        batches = self._file.iter_batches(batch_size=step, use_threads=False)
        while True:
            try:
                with naming_file(self.path):
                    batch = next(batches, None)
            except DataError:
                self._state.check()  # report a file that was rewritten while it was read as changed, not as damaged
                raise
            if batch is None:
                self._state.check()
                return
            yield self._array(batch, first)
            first += len(batch)

    def _array(self, batch: Any, first: int = 0) -> AnyArray:
        """The rows of a batch, numbered from ``first``; lists must be as long as the list of row 0."""
        names = batch.schema.names
        columns = [self._column(name, each, first) for name, each in zip(names, batch.columns, strict=True)]
        if len(columns) == 1:
            return columns[0]
        if any(column.ndim > 1 for column in columns):
            raise DataError(f"{self.path} has lists in one of {len(columns)} columns: give that column alone.")
        return np.stack(columns, axis=1)

    def _column(self, name: str, column: Any, first: int) -> AnyArray:
        if column.null_count:
            row = first + _first_null(column)
            raise DataError(f"row {row} of {self.path}, counted from 0, is empty in column {name!r}: fill it in.")
        if "list" not in str(column.type):
            return np.asarray(column.to_numpy(zero_copy_only=False))
        lengths = np.asarray(column.value_lengths())
        self._width = int(lengths[0]) if self._width is None else self._width
        wrong = np.flatnonzero(lengths != self._width)
        if wrong.size:
            raise DataError(
                f"row {first + wrong[0]} of {self.path}, counted from 0, has a list of {lengths[wrong[0]]} in column "
                f"{name!r}, but row 0 has one of {self._width}: the lists of all rows are equally long."
            )
        values = column.flatten()
        if values.null_count:
            row, position = divmod(_first_null(values), self._width)
            raise DataError(
                f"row {first + row} of {self.path}, counted from 0, has an empty value in its list in column {name!r}, "
                f"at position {position}: fill it in."
            )
        return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(column), self._width)


def _first_null(values: Any) -> int:
    return int(np.asarray(values.is_null()).argmax())
