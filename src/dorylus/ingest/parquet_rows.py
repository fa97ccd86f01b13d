"""Rows of a Parquet file: a number a column, or one column of lists that are equally long."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.errors import DataError
from dorylus.graph import AnyArray
from dorylus.ingest.readers.arrow import damage_named
from dorylus.ingest.readers.edge_file import COPIES, UncachedFile, Unchanged
from dorylus.ingest.row_files import number_cure
from dorylus.process_memory import resident_bytes

BLOCK_ROWS = 1 << 14
BLOCK_BYTES = 1 << 22
BUFFERS_BYTES = 1 << 24  # of all columns together: each is read at a place of its own


class ParquetRows:
    """The rows of a .parquet file: [N] for one column of numbers, [N, F] for several or for one of lists.

    ``resident_bytes`` is what the process has while rows are read; a first row that would bring it beyond
    ``memory_bytes`` is a ConfigError.
    """

    def __init__(self, path: Path, what: str, memory_bytes: int | None = None) -> None:
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ImportError as error:
            raise DataError(f'reading {path} takes pyarrow: pip install "dorylus[parquet]".') from error
        self.path, self._state = path, Unchanged(path)
        self._width: int | None = None  # of lists, once the first was read
        try:
            columns = len(parquet.read_metadata(path).schema)
            # Pages are read as they are needed: reading ahead would hold whole row groups.
            buffer_bytes = max(4096, min(1 << 20, BUFFERS_BYTES // max(columns, 1)))
            before = resident_bytes() - arrow.total_allocated_bytes()
            raw = UncachedFile(path, memory_bytes)
            source = arrow.PythonFile(raw, mode="r")
            self._file: Any = parquet.ParquetFile(
                source, buffer_size=buffer_bytes, pre_buffer=False, page_checksum_verification=True
            )
            batches = self._file.iter_batches(batch_size=1, use_threads=False)
            first = next(batches, None)
            # Pages of all columns are held now, as they are at any row; the next one comes beside them.
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
        """The rows, some at a time."""
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        step, first = max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(row_bytes, 1))), 0
        batches = self._file.iter_batches(batch_size=step, use_threads=False)
        while True:
            try:
                with damage_named(self.path):
                    batch = next(batches, None)
            except DataError:
                self._state.check()  # a file that was written anew meanwhile is not a damaged one
                raise
            if batch is None:
                self._state.check()
                return
            yield self._array(batch, first)
            first += len(batch)

    def _array(self, batch: Any, first: int = 0) -> AnyArray:
        """The rows of a batch, numbered from ``first`` on; lists are as long as that of row 0."""
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
            row, place = divmod(_first_null(values), self._width)
            raise DataError(
                f"row {first + row} of {self.path}, counted from 0, has an empty value in its list in column {name!r}, "
                f"at place {place}: fill it in."
            )
        return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(column), self._width)


def _first_null(values: Any) -> int:
    return int(np.asarray(values.is_null()).argmax())
