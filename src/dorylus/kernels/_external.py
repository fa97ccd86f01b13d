"""Sorting more edges than memory holds, through a scratch file."""

import tempfile
from collections.abc import Iterator
from os import PathLike
from typing import Self

from dorylus.kernels import _native
from dorylus.kernels._arrays import Floats, Ints

EdgeBlock = tuple[Ints, Ints, Floats | None]
"""(rows, columns, weights or None)."""


class WeightClash(ValueError):  # noqa: N818
    """One edge came with two weights: ``row``, ``column``, ``first`` and ``second`` say which."""

    def __init__(self, row: int, column: int, first: float, second: float) -> None:
        super().__init__(f"edge ({row}, {column}) has two weights, {first:g} and {second:g}")
        self.row, self.column, self.first, self.second = row, column, first, second


class EdgeSort:
    """Takes edges in any order and gives them by ascending (row, column), within ``memory_bytes``.

    Sorted runs lie in one unnamed file in ``folder``, which bypasses the page cache and vanishes with the process;
    a thread of the sort's own writes them. ``undirected`` adds the reverse of every edge (of a self loop none),
    ``drop_self_loops`` leaves those out, and ``coalesce`` gives every edge once; one with two weights is refused
    (:class:`WeightClash`). Without it, equal edges come in the order they were added in. A file that cannot be written
    is an OSError. ``close`` gives memory and space back; it is a context manager.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        memory_bytes: int,
        *,
        weighted: bool = False,
        undirected: bool = False,
        drop_self_loops: bool = False,
        coalesce: bool = True,
    ) -> None:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            self._native = _native.EdgeSort(
                file.fileno(), memory_bytes, weighted, undirected, drop_self_loops, coalesce
            )

    def add(self, rows: Ints, columns: Ints, weights: Floats | None = None) -> None:
        """Adds the edges (rows[e], columns[e]); int32 from 0. Weights are float32, given always or never."""
        self._native.add(rows, columns, weights)

    def sorted(self, memory_bytes: int, block_edges: int = 1 << 20) -> Iterator[EdgeBlock]:
        """The edges in order, in blocks, each merged while the one before is used; nothing can be added any more.

        The file's space is given back with each read, before its edges are in a block. Blocks, up to three at a time,
        come on top of ``memory_bytes``.
        """
        edges = self._native.sorted(memory_bytes, block_edges)
        try:
            while (block := edges.next()) is not None:
                yield block
        finally:
            edges.close()

    @property
    def spooled_bytes(self) -> int:
        """Bytes written to the file so far, all runs but the one that is being filled."""
        return self._native.spooled_bytes()

    def close(self) -> None:
        """Gives memory and file space back."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
