"""Rows of a store, read as they are asked for: for servers that need some of them, and must not hold the rest.

A memory-mapped file would do, but for the pages: rows lie scattered, and every page touched counts as memory in use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, overload

import numpy as np

from dorylus.graph.arrays import AnyArray, FloatArray
from dorylus.graph.features import SparseFeatures
from dorylus.paging import BlockSums, changed, damaged

BLOCK_BYTES = 1 << 20


class StoredRows:
    """The rows of an array that lies in a file, whole or some columns of them."""

    def __init__(
        self,
        opened: Callable[[], BinaryIO],
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        columns: slice | None = None,
        *,
        name: str = "a file",
        sums: BlockSums | None = None,
    ) -> None:
        self._opened, self.dtype, self.shape, self._columns = opened, dtype, shape, columns
        self._name, self._sums = name, sums

    def __len__(self) -> int:
        return self.shape[0]

    @overload
    def __getitem__(self, wanted: AnyArray) -> AnyArray: ...

    @overload
    def __getitem__(self, wanted: tuple[slice, slice]) -> "StoredRows": ...

    def __getitem__(self, wanted: AnyArray | tuple[slice, slice]) -> "AnyArray | StoredRows":
        """These rows, in this order; or, as ``[:, columns]``, all rows to be asked for with some columns each."""
        if isinstance(wanted, tuple):
            return StoredRows(self._opened, self.dtype, self.shape, wanted[1], name=self._name, sums=self._sums)
        return self._rows(wanted)

    def _rows(self, rows: AnyArray) -> AnyArray:
        """Reads the file in its own order, each block from the first row wanted in it to the last."""
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        columns = self._columns or slice(None)
        width = tuple(len(range(each)[columns]) for each in self.shape[1:])
        out = np.empty((rows.size, *width), self.dtype)
        if not out.size:
            return out
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        blocks = wanted // max(1, BLOCK_BYTES // row_bytes)
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        with self._opened() as file:
            for begin, end in zip(starts, [*starts[1:], rows.size], strict=True):
                first, last = int(wanted[begin]), int(wanted[end - 1])
                read = self._read(file, first * row_bytes, (last + 1 - first) * row_bytes)
                block = read.reshape(-1, *self.shape[1:])
                out[order[begin:end]] = (block[:, columns] if width else block)[wanted[begin:end] - first]
        return out

    def _read(self, file: BinaryIO, offset: int, count: int) -> AnyArray:
        """Some bytes; whole blocks are read, where they have checksums, and compared with them."""
        if self._sums is None:
            return np.frombuffer(self._bytes(file, offset, offset + count), self.dtype)
        step, size = self._sums.block_bytes, self.dtype.itemsize * int(np.prod(self.shape))
        begin, end = offset // step * step, min(-(-(offset + count) // step) * step, size)
        found = self._bytes(file, begin, end)
        if (wrong := self._sums.first_wrong(found, begin)) is not None:
            raise damaged(self._name, wrong)
        return np.frombuffer(found, self.dtype, count // self.dtype.itemsize, offset - begin)

    def _bytes(self, file: BinaryIO, begin: int, end: int) -> memoryview:
        file.seek(begin)
        parts = bytearray()
        while begin + len(parts) < end:
            part = file.read(end - begin - len(parts))
            if not part:
                raise changed(self._name, f"ended at byte {begin + len(parts):,}, before byte {end:,},")
            parts += part
        return memoryview(parts)


@dataclass(frozen=True, eq=False)
class StoredSparseRows:
    """The rows of sparse features that lie in files: see :class:`~dorylus.graph.features.SparseFeatures`."""

    indptr: StoredRows
    indices: StoredRows
    values: StoredRows
    num_columns: int

    def permute(self, order: AnyArray) -> SparseFeatures:
        """The matrix of these rows, in this order."""
        begin, end = self.indptr[order], self.indptr[order + 1]
        indptr = np.zeros(order.size + 1, np.int64)
        np.cumsum(end - begin, out=indptr[1:])
        entries = np.arange(indptr[-1]) + np.repeat(begin - indptr[:-1], end - begin)
        return SparseFeatures(indptr, self.indices[entries], self.values[entries], self.num_columns)

    def to_dense(self, rows: AnyArray) -> FloatArray:
        """float32 [rows, columns]."""
        return self.permute(rows).to_dense()


@dataclass(frozen=True, eq=False)
class StoredVertices:
    """The vertices of a store, as far as training needs to know them, read as they are asked for; no edges."""

    num_vertices: int
    features: StoredRows | StoredSparseRows
    labels: StoredRows | None
    train_mask: StoredRows
