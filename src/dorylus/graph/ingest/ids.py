"""Dense numbers for whatever ids the input has: taken as they are, or given in the order in which ids first appear.

``original()`` gives the ids back in the order of their numbers, block after block. ``bytes_for(num_vertices)`` tells
what a numbering keeps in memory, and one that would pass its ``memory_bytes`` is refused.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dorylus import kernels
from dorylus.errors import DataError
from dorylus.graph.canonical import MAX_VERTICES
from dorylus.graph.ingest.batches import EdgeBatch, EdgeSource, Tokens, shown

BLOCK_IDS = 1 << 16
UNLIMITED = 2**63 - 1


class Dense:
    """Ids that are numbers from 0 already; ``num_vertices`` bounds them where it is known."""

    def __init__(self, num_vertices: int | None = None) -> None:
        self._given = num_vertices
        self._largest = -1

    @property
    def num_vertices(self) -> int:
        """As given, or one more than the largest number so far."""
        return self._largest + 1 if self._given is None else self._given

    def ends(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The ends as they are, in 32 bits."""
        source, destination = (self._checked(ends, batch) for ends in numbers_of(batch))
        return source, destination

    def original(self) -> Iterator[NDArray[np.int64]]:
        """The numbers themselves."""
        for begin in range(0, self.num_vertices, BLOCK_IDS):
            yield np.arange(begin, min(begin + BLOCK_IDS, self.num_vertices))

    @staticmethod
    def bytes_for(num_vertices: int) -> int:
        """Nothing is kept."""
        return 0

    def _checked(self, ends: NDArray[np.int64], batch: EdgeBatch) -> NDArray[np.int32]:
        end = MAX_VERTICES if self._given is None else self._given
        least, largest = (int(ends.min()), int(ends.max())) if ends.size else (0, -1)
        if least < 0 or largest >= end:
            self._refuse(batch, end)
        self._largest = max(self._largest, largest)
        return ends.astype(np.int32)

    def _refuse(self, batch: EdgeBatch, end: int) -> NoReturn:
        source, destination = numbers_of(batch)
        position = int(
            np.flatnonzero((np.minimum(source, destination) < 0) | (np.maximum(source, destination) >= end))[0]
        )
        cure = "N" if self._given is None else "Give a larger num_vertices, or n"
        raise DataError(
            f"{batch.told(position)} leads out of the numbers 0 to {end - 1:,}. {cure}umber any other ids by ids='map' "
            "(--ids map)."
        )


class ByAppearance(ABC):
    """Numbers for ids in the order of ``vertices`` first, then of appearance: source before destination.

    With ``fixed`` an edge may only lead between the ``vertices`` given.
    """

    def __init__(self, table: kernels.NumberIds | kernels.NameIds, limit_bytes: int) -> None:
        self._ids, self._limit = table, limit_bytes
        self._fixed = False

    @property
    def num_vertices(self) -> int:
        """How many ids have a number."""
        return len(self._ids)

    @property
    def fixed(self) -> bool:
        """Whether there are no other vertices than those listed."""
        return self._fixed

    def ends(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The numbers of the ends; new ids get the next ones."""
        try:
            numbers = self._pairs(batch)
        except OverflowError as error:
            raise full(len(self._ids), self._limit) from error
        if self._fixed:
            refuse_unknown(batch, *numbers, len(self._ids))
        return numbers

    def _begin(self, vertices: EdgeSource | None, fixed: bool) -> None:
        """Numbers the vertices that are listed."""
        for batch in vertices or ():
            before = len(self._ids)
            refuse_repeats(batch, self.ends(batch)[0], before)
        self._fixed = fixed

    @abstractmethod
    def _pairs(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The numbers as the table gives them; OverflowError where it may not grow."""


class Mapped(ByAppearance):
    """Numbers for any whole numbers."""

    def __init__(
        self, *, vertices: EdgeSource | None = None, fixed: bool = False, memory_bytes: int | None = None
    ) -> None:
        limit = UNLIMITED if memory_bytes is None else memory_bytes
        self._table = kernels.NumberIds(limit)
        super().__init__(self._table, limit)
        self._begin(vertices, fixed)

    def original(self) -> Iterator[NDArray[np.int64]]:
        """The ids, by number."""
        for begin in range(0, len(self._table), BLOCK_IDS):
            yield self._table.ids(begin, min(BLOCK_IDS, len(self._table) - begin))

    @staticmethod
    def bytes_for(num_vertices: int) -> int:
        """What the table of so many ids takes."""
        return kernels.NumberIds.bytes_for(num_vertices)

    def _pairs(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return self._table.pairs(*numbers_of(batch), fixed=self._fixed)


def numbers_of(batch: EdgeBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both ends of a batch whose ids are numbers."""
    if isinstance(batch.source, Tokens) or isinstance(batch.destination, Tokens):
        raise DataError("the edges have names for ends, but numbers were asked for. Number names by ids='strings'.")
    return batch.source, batch.destination


def refuse_repeats(batch: EdgeBatch, numbers: NDArray[np.int32], before: int) -> None:
    """A list of vertices names each once."""
    repeated = np.flatnonzero(numbers != before + np.arange(len(numbers)))
    if repeated.size:
        position = int(repeated[0])
        raise DataError(
            f"the list of vertices names {shown(batch.source[position])} twice, again at {batch.place(position)}. List "
            "every vertex once."
        )


def refuse_unknown(
    batch: EdgeBatch,
    source: NDArray[np.int32],
    destination: NDArray[np.int32],
    num_vertices: int,
) -> None:
    """An edge leads between vertices that are known, where all are given beforehand."""
    unknown = np.flatnonzero((source < 0) | (destination < 0))
    if unknown.size:
        position = int(unknown[0])
        ends = batch.source if source[position] < 0 else batch.destination
        raise DataError(
            f"{batch.told(position)} has the end {shown(ends[position])}, which is not among the {num_vertices:,} "
            "vertices given. Add it to them, or drop the edge."
        )


def full(num_ids: int, limit_bytes: int) -> DataError:
    """The refusal of a table that may not grow."""
    if num_ids >= MAX_VERTICES:
        return DataError(f"there are more than {MAX_VERTICES:,} different ids: a graph has at most so many vertices.")
    return DataError(
        f"the ids of more than {num_ids:,} vertices do not fit in the {limit_bytes:,} bytes that may be used for them: "
        "give more memory, or number the vertices from 0 beforehand and pass ids='dense'."
    )
