"""Rows of a Parquet file: a number a column, or one column of lists that are equally long."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.errors import DataError
from dorylus.graph.arrays import AnyArray

BLOCK_ROWS = 1 << 14
BUFFERS_BYTES = 1 << 24  # of all columns together: each is read at a place of its own


class ParquetRows:
    """The rows of a .parquet file: [N] for one column of numbers, [N, F] for several or for one of lists."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ImportError as error:
            raise DataError(f"reading {path} takes pyarrow: pip install 'dorylus[parquet]'.") from error
        self.path = path
        try:
            columns = len(parquet.read_metadata(path).schema)
            # Pages are read as they are needed: reading ahead would hold whole row groups.
            buffer_bytes = max(4096, min(1 << 20, BUFFERS_BYTES // max(columns, 1)))
            self._file: Any = parquet.ParquetFile(path, buffer_size=buffer_bytes, pre_buffer=False)
            first = next(self._file.iter_batches(batch_size=1, use_threads=False), None)
        except arrow.ArrowInvalid as error:
            raise DataError(f"{path} is not a Parquet file: {error}.") from error
        sample = self._array(first) if first is not None else np.empty(0, np.float32)
        self.shape: tuple[int, ...] = (self._file.metadata.num_rows, *sample.shape[1:])
        self.dtype = sample.dtype
        if self.dtype.kind not in "biuf":
            raise DataError(f"{path} holds {self.dtype}: its columns must be numbers, or one column lists of numbers.")

    def blocks(self) -> Iterator[AnyArray]:
        """The rows, some at a time."""
        with open(self.path, "rb", buffering=0) as file:
            for batch in self._file.iter_batches(batch_size=BLOCK_ROWS, use_threads=False):
                yield self._array(batch)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _array(self, batch: Any) -> AnyArray:
        columns = [_column(self.path, name, each) for name, each in zip(batch.schema.names, batch.columns, strict=True)]
        if len(columns) == 1:
            return columns[0]
        if any(column.ndim > 1 for column in columns):
            raise DataError(f"{self.path} has lists in one of {len(columns)} columns: give that column alone.")
        return np.stack(columns, axis=1)


def _column(path: Path, name: str, column: Any) -> AnyArray:
    if column.null_count:
        raise DataError(f"column {name!r} of {path} has {column.null_count} empty values: fill them in.")
    if "list" not in str(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    values = np.asarray(column.flatten().to_numpy(zero_copy_only=False))
    if len(column) and len(values) % len(column):
        raise DataError(
            f"the lists in column {name!r} of {path} differ in length: a row of features is as long as any."
        )
    return values.reshape(len(column), -1)
