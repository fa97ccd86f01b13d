"""The reference's part for sorting edges: all of them at once, in memory."""

from collections.abc import Iterator
from os import PathLike
from typing import Self

import numpy as np

from dorylus.kernels._arrays import Array, Floats, Ints
from dorylus.kernels._external import EdgeBlock, WeightClash


class EdgeSort:
    """See :class:`dorylus.kernels.EdgeSort`."""

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
        self._weighted, self._undirected, self._coalesce = weighted, undirected, coalesce
        self._drop_self_loops = drop_self_loops
        self._edges: list[tuple[int, int, float]] = []

    def add(self, rows: Ints, columns: Ints, weights: Floats | None = None) -> None:
        """See :meth:`dorylus.kernels.EdgeSort.add`."""
        for e, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            weight = 0.0 if weights is None else float(weights[e])
            if row == column and self._drop_self_loops:
                continue
            self._edges.append((row, column, weight))
            if self._undirected and row != column:
                self._edges.append((column, row, weight))

    def sorted(self, memory_bytes: int, block_edges: int = 1 << 20) -> Iterator[EdgeBlock]:
        """See :meth:`dorylus.kernels.EdgeSort.sorted`."""
        ordered = sorted(self._edges, key=lambda edge: edge[:2])
        if self._coalesce:
            ordered = _each_once(ordered)
        for begin in range(0, len(ordered), block_edges):
            rows, columns, weights = zip(*ordered[begin : begin + block_edges], strict=True)
            yield _ints(rows), _ints(columns), np.array(weights, np.float32) if self._weighted else None

    def close(self) -> None:
        """See :meth:`dorylus.kernels.EdgeSort.close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _each_once(ordered: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    kept: dict[tuple[int, int], float] = {}
    for row, column, weight in ordered:
        if kept.setdefault((row, column), weight) != weight:
            raise WeightClash(row, column, kept[row, column], weight)
    return [(row, column, weight) for (row, column), weight in kept.items()]


def _ints(numbers: tuple[int, ...]) -> Array:
    return np.array(numbers, np.int32)
