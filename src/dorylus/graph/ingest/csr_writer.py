"""Sorted edges as the arrays of a CSR, written as they come."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from dorylus.graph.array_folder import NewFolder
from dorylus.graph.array_writer import ArrayWriter
from dorylus.graph.arrays import FloatArray, IdArray

STEP = 1 << 20  # vertices whose offsets are made at a time


class CsrWriter:
    """Writes ``indptr``, ``indices`` and perhaps weights as edges come."""

    def __init__(self, indptr: ArrayWriter, indices: ArrayWriter, weight: ArrayWriter | None) -> None:
        self._indptr, self._indices, self._weight = indptr, indices, weight
        self._begun = 0  # rows whose first entry is known
        self._last = -1  # row of an edge
        self.num_edges = self.num_filled = 0  # rows that have an edge

    def write(self, rows: IdArray, columns: IdArray, weight: FloatArray | None) -> None:
        """Appends edges, which follow the ones before in order of (row, column)."""
        if not rows.size:
            return
        self._begin_rows(int(rows[-1]) + 1, rows)
        self._indices.write(columns)
        if self._weight is not None:
            assert weight is not None
            self._weight.write(weight)
        self.num_edges += rows.size
        self.num_filled += int(np.count_nonzero(np.diff(rows))) + (int(rows[0]) != self._last)
        self._last = int(rows[-1])

    def finish(self, num_vertices: int) -> None:
        """Writes the rows that no edge came for."""
        self._begin_rows(num_vertices, np.empty(0, np.int32))
        self._indptr.write(np.array([self.num_edges], np.int64))

    def _begin_rows(self, end: int, rows: IdArray) -> None:
        for begin in range(self._begun, end, STEP):
            vertices = np.arange(begin, min(begin + STEP, end), dtype=np.int32)
            self._indptr.write(self.num_edges + np.searchsorted(rows, vertices).astype(np.int64))
        self._begun = max(self._begun, end)


@contextmanager
def csr_arrays(folder: NewFolder, num_vertices: int, *, weighted: bool, prefix: str = "") -> Iterator[CsrWriter]:
    """A writer of the arrays ``indptr``, ``indices`` and perhaps ``edge_weight``, with a prefix to their names."""
    with ExitStack() as files:
        indptr = files.enter_context(folder.array(f"{prefix}indptr", "<i8"))
        indices = files.enter_context(folder.array(f"{prefix}indices", "<i4"))
        weight = files.enter_context(folder.array(f"{prefix}edge_weight", "<f4")) if weighted else None
        writer = CsrWriter(indptr, indices, weight)
        yield writer
        writer.finish(num_vertices)
