"""Raw binary edges: pairs of little-endian numbers, source and destination, without a header."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.errors import DataError, given
from dorylus.ingest.batches import EdgeBatch, counted
from dorylus.ingest.readers import columns as row_checks
from dorylus.ingest.readers.edge_file import BATCH_ROWS, PageCache
from dorylus.ingest.readers.options import ReadOptions

BY_SUFFIX: dict[str, np.dtype[Any]] = {".i32": np.dtype("<i4"), ".i64": np.dtype("<i8")}


class BinaryEdges:
    """The edges of a raw binary file."""

    strings = False
    weighted = False

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._options = options
        self._dtype = _dtype(path, options)
        if options.columns is not None:
            raise DataError(f"{path} is raw binary, which holds pairs and no columns: leave {given('columns')} out.")
        pair, size = 2 * self._dtype.itemsize, path.stat().st_size
        if size % pair:
            raise DataError(
                f"{path} has {size:,} bytes, which is not a whole number of pairs of {self._dtype.name} ({pair} bytes "
                f"each). Give its type by {given('dtype', ...)}, or copy it whole."
            )
        self.num_edges: int | None = size // pair

    def __iter__(self) -> Iterator[EdgeBatch]:
        row = 0
        with open(self.path, "rb", buffering=0) as file, PageCache(self.path) as cache:
            while pairs := _read(file, BATCH_ROWS * 2 * self._dtype.itemsize):
                ends = np.frombuffer(pairs, self._dtype).reshape(-1, 2)
                source, destination = (row_checks.ids(self.path, ends[:, end], row, self._options) for end in (0, 1))
                cache.behind(file.tell())
                yield EdgeBatch(source, destination, None, file.tell(), counted(row, f"{self.path}, row"))
                row += len(ends)
                del pairs, ends, source, destination  # before the next are read


def _read(file: Any, count: int) -> bytearray:
    """The next ``count`` bytes, or what is left: a raw read may give less than asked."""
    content, done = bytearray(count), 0
    with memoryview(content) as room:
        while done < count and (got := file.readinto(room[done:])):
            done += got
    del content[done:]
    return content


def _dtype(path: Path, options: ReadOptions) -> np.dtype[Any]:
    dtype = BY_SUFFIX.get(path.suffix.lower()) if options.dtype is None else options.dtype
    if dtype is None:
        raise DataError(
            f"{path} is raw binary, whose type cannot be seen. Give {given('dtype', 'int32')} or "
            f"{given('dtype', 'int64')}, or call the file "
            ".i32 or .i64."
        )
    return dtype
