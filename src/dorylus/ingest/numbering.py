"""Vertex numbers for the ids of the input: the ids themselves, or numbers in the order in which ids first appear.

``original()`` returns the ids in the order of their numbers, block by block. ``bytes_for(num_vertices)`` is the memory
that a numbering needs. A table of ids that would exceed its ``memory_bytes`` is refused (:class:`IdTableFullError`)
after the ids in the rest of the input were counted (:class:`DistinctIds`), so that the error states how many there are.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import native
from dorylus.errors import DataError, given
from dorylus.graph import MAX_VERTICES
from dorylus.ingest.batches import (
    EdgeBatch,
    EdgeSource,
    Ends,
    Tokens,
    first_invalid_name,
    format_id,
    invalid_name_error,
    locate_by_number,
)
from dorylus.ingest.scratch import NameScratch

BLOCK_IDS = 1 << 16
UNLIMITED = 2**63 - 1


BITS = 16
MARGIN = 1.02  # five times the standard error of 0.4 %
_ALPHA = 0.7213 / (1 + 1.079 / (1 << BITS))
_PIECE_IDS = 1 << 16
_PIECE_BYTES = 1 << 18
_BASE = 0x9E3779B97F4A7C15  # odd, so that its powers have a long period


class DistinctIds:
    """Estimates the number of distinct ids in 64 KiB by HyperLogLog."""

    def __init__(self) -> None:
        self._ranks = np.zeros(1 << BITS, np.uint8)

    def add(self, ids: Ends) -> None:
        """Count these ids too."""
        if isinstance(ids, Tokens):
            self._add_names(ids)
            return
        for begin in range(0, len(ids), _PIECE_IDS):
            self._add_keys(ids[begin : begin + _PIECE_IDS].astype(np.uint64))

    def most(self) -> int:
        """The number of distinct ids, slightly overestimated."""
        free = int(np.count_nonzero(self._ranks == 0))
        count = self._ranks.size
        estimate = _ALPHA * count * count / float(np.sum(np.ldexp(1.0, -self._ranks.astype(np.int64))))
        if estimate <= 2.5 * count and free:
            estimate = count * float(np.log(count / free))
        return int(estimate * MARGIN) + 1

    def _add_keys(self, keys: NDArray[np.uint64]) -> None:
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys ^= keys >> np.uint64(31)
        rest = (keys << np.uint64(BITS)) | np.uint64(1 << (BITS - 1))
        ranks = (65 - np.frexp(rest.astype(np.float64))[1]).astype(np.uint8)  # leading zeros plus one
        np.maximum.at(self._ranks, (keys >> np.uint64(64 - BITS)).astype(np.intp), ranks)

    def _add_names(self, names: Tokens) -> None:
        first = 0
        while first < len(names):
            end = names.offsets[first] + _PIECE_BYTES
            fitting = int(np.searchsorted(names.offsets, end, side="right")) - 1
            last = min(max(fitting, first + 1), first + _PIECE_IDS, len(names))
            self._add_keys(_keys(names, first, last))
            first = last


def _keys(names: Tokens, first: int, last: int) -> NDArray[np.uint64]:
    """A hash of each name: a polynomial modulo 2^64 with its bytes as coefficients."""
    offsets = names.offsets[first : last + 1] - names.offsets[first]
    content = names.bytes[names.offsets[first] : names.offsets[last]].astype(np.uint64) + np.uint64(1)
    lengths = np.diff(offsets)
    powers = np.full(int(lengths.max(initial=0)) + 1, _BASE, np.uint64)
    powers[0] = 1
    powers = np.cumprod(powers, dtype=np.uint64)
    content *= powers[np.arange(content.size) - np.repeat(offsets[:-1], lengths)]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(content, dtype=np.uint64)])
    keys: NDArray[np.uint64] = sums[offsets[1:]] - sums[offsets[:-1]]
    return keys


class IdTableFullError(DataError):
    """The table of about ``num_ids`` ids takes ``num_bytes``, more than its part of the memory."""

    def __init__(self, distinct: DistinctIds, limit_bytes: int, bytes_for: Callable[[int], int]) -> None:
        self._distinct, self._limit, self._bytes_for = distinct, limit_bytes, bytes_for
        self.num_ids = distinct.most()
        self.num_bytes = bytes_for(self.num_ids)
        super().__init__(
            f"the ids of about {self.num_ids:,} vertices take {self.num_bytes:,} bytes, but {limit_bytes:,} bytes may "
            "be used for them: give more memory, or number the vertices from 0 beforehand and pass "
            f"{given('ids', 'dense')}."
        )

    def with_rest(self, rest: Iterable[EdgeBatch]) -> "IdTableFullError":
        """The error with the ids of the rest of the input counted too."""
        for batch in rest:
            self._distinct.add(batch.source)
            self._distinct.add(batch.destination)
        return IdTableFullError(self._distinct, self._limit, self._bytes_for)


class DenseIds:
    """Ids that are vertex numbers already; ``num_vertices`` bounds them if it is given."""

    drop_unknown = False

    def __init__(self, num_vertices: int | None = None) -> None:
        self._given = num_vertices
        self._largest = -1

    @property
    def num_vertices(self) -> int:
        """The given number, or the largest id so far plus one."""
        return self._largest + 1 if self._given is None else self._given

    def ends(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The ends themselves as int32."""
        source, destination = (self._checked(ends, batch) for ends in numbers_of(batch))
        return source, destination

    def original(self) -> Iterator[NDArray[np.int64]]:
        """The numbers 0, 1, ..."""
        for begin in range(0, self.num_vertices, BLOCK_IDS):
            yield np.arange(begin, min(begin + BLOCK_IDS, self.num_vertices))

    @staticmethod
    def bytes_for(num_vertices: int) -> int:
        """0: no table is needed."""
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
        cure = "N" if self._given is None else f"Give a larger {given('num_vertices')}, or n"
        raise DataError(
            f"{batch.describe(position)} is outside the vertex numbers 0 to {end - 1:,}. {cure}umber any other ids by "
            f"{given('ids', 'map')}."
        )


class NumberedByAppearance(ABC):
    """Numbers the ids of ``vertices`` first, then others in order of appearance, source before destination.

    With ``fixed``, edges may only join the given ``vertices``: others are refused or, with ``drop_unknown``, get the
    number -1 for the end that is not among them.
    """

    strings = False
    drop_unknown = False

    def __init__(self, table: native.NumberIds | native.NameIds, limit_bytes: int) -> None:
        self._ids, self._limit = table, limit_bytes
        self._fixed = False

    @property
    def num_vertices(self) -> int:
        """The number of ids that have a number."""
        return len(self._ids)

    @property
    def fixed(self) -> bool:
        """Whether the listed vertices are all vertices."""
        return self._fixed

    def ends(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The numbers of the ends; new ids get the next numbers."""
        numbers = None
        with suppress(OverflowError):
            numbers = self._pairs(batch)
        if numbers is None:  # outside the handler: its exception would keep the batch alive
            raise self._full(batch)
        if self._fixed and not self.drop_unknown:
            check_known(batch, *numbers, len(self._ids))
        return numbers

    def find(self, ids: Ends) -> NDArray[np.int32]:
        """The numbers of ids, -1 for those that have none."""
        fixed, self._fixed = self._fixed, True
        try:
            return self._pairs(EdgeBatch(ids, ids, None, 0, locate_by_number(0)))[0]
        finally:
            self._fixed = fixed

    def _begin(self, vertices: EdgeSource | None, fixed: bool) -> None:
        """Number the listed vertices."""
        batches = iter(vertices or ())
        for batch in batches:
            before = len(self._ids)
            try:
                numbers = self.ends(batch)[0]
            except IdTableFullError as error:
                raise error.with_rest(batches) from error
            check_repeats(batch, numbers, before)
        self._fixed = fixed

    def _full(self, batch: EdgeBatch) -> DataError:
        """The error for a table that may not grow."""
        if len(self._ids) >= MAX_VERTICES:
            return DataError(
                f"there are more than {MAX_VERTICES:,} different ids: a graph has at most so many vertices."
            )
        distinct = DistinctIds()
        for ids in chain(self.original(), (batch.source, batch.destination)):
            distinct.add(ids)
        return IdTableFullError(distinct, self._limit, self.bytes_for)

    @abstractmethod
    def original(self) -> Iterator[Ends]:
        """The ids, by number."""

    @staticmethod
    @abstractmethod
    def bytes_for(num_vertices: int) -> int:
        """The bytes of a table of ``num_vertices`` ids."""

    @abstractmethod
    def _pairs(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The numbers from the table; OverflowError if it may not grow."""


class MappedNumbers(NumberedByAppearance):
    """Vertex numbers for arbitrary int64 ids."""

    def __init__(
        self, *, vertices: EdgeSource | None = None, fixed: bool = False, memory_bytes: int | None = None
    ) -> None:
        limit = UNLIMITED if memory_bytes is None else memory_bytes
        self._table = native.NumberIds(limit)
        super().__init__(self._table, limit)
        self._begin(vertices, fixed)

    def original(self) -> Iterator[NDArray[np.int64]]:
        """The ids, by number."""
        for begin in range(0, len(self._table), BLOCK_IDS):
            yield self._table.ids(begin, min(BLOCK_IDS, len(self._table) - begin))

    @staticmethod
    def bytes_for(num_vertices: int) -> int:
        """The bytes of a table of ``num_vertices`` ids."""
        return native.NumberIds.bytes_for(num_vertices)

    def _pairs(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return self._table.pairs(*numbers_of(batch), fixed=self._fixed)


def numbers_of(batch: EdgeBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both ends of a batch whose ids are numbers."""
    if isinstance(batch.source, Tokens) or isinstance(batch.destination, Tokens):
        raise DataError(
            f"the ends of edges are names, but numbers are expected. Number names by {given('ids', 'strings')}."
        )
    return batch.source, batch.destination


def check_repeats(batch: EdgeBatch, numbers: NDArray[np.int32], before: int) -> None:
    """Refuse a list of vertices that names one twice."""
    repeated = np.flatnonzero(numbers != before + np.arange(len(numbers)))
    if repeated.size:
        position = int(repeated[0])
        raise DataError(
            f"the list of vertices names {format_id(batch.source[position])} twice, again at {batch.locate(position)}. "
            "List every vertex once."
        )


def check_known(
    batch: EdgeBatch,
    source: NDArray[np.int32],
    destination: NDArray[np.int32],
    num_vertices: int,
) -> None:
    """Refuse an edge to a vertex that is not in the list."""
    unknown = np.flatnonzero((source < 0) | (destination < 0))
    if begins_with_header(batch, source, destination):
        unknown = unknown[1:]
    if unknown.size:
        position = int(unknown[0])
        ends = batch.source if source[position] < 0 else batch.destination
        if isinstance(ends, Tokens) and first_invalid_name(ends.take(unknown[:1])) is not None:
            raise invalid_name_error(ends, position, batch.locate(position))
        raise DataError(
            f"{batch.describe(position)} has the end {format_id(ends[position])}, which is not among the "
            f"{num_vertices:,} vertices given. Add it to them, leave all such edges out by "
            f"{given('drop_unknown', True)}, or drop the edge."
        )


def begins_with_header(batch: EdgeBatch, source: NDArray[np.int32], destination: NDArray[np.int32]) -> bool:
    """Whether the first line of a text is a header: it may be one, and names two ids that no vertex has."""
    return batch.perhaps_header and bool(source.size) and source[0] < 0 and destination[0] < 0


class MappedNames(NumberedByAppearance):
    """Vertex numbers for names.

    The table holds 128 bits per name; the names are in a scratch file in ``scratch`` (default: the temporary folder).
    """

    strings = True

    def __init__(
        self,
        *,
        vertices: EdgeSource | None = None,
        fixed: bool = False,
        memory_bytes: int | None = None,
        scratch: Path | None = None,
    ) -> None:
        limit = UNLIMITED if memory_bytes is None else memory_bytes
        self._table, self._names = native.NameIds(limit), NameScratch(scratch)
        super().__init__(self._table, limit)
        self._begin(vertices, fixed)

    @property
    def scratch_bytes(self) -> int:
        """The bytes of the names on disk."""
        return self._names.num_bytes

    def original(self) -> Iterator[Tokens]:
        """The names, by number; the offsets of each block begin at 0."""
        return self._names.blocks()

    def close(self) -> None:
        """Delete the scratch file."""
        self._names.close()

    @staticmethod
    def bytes_for(num_vertices: int) -> int:
        """The bytes of a table of ``num_vertices`` names; the names are on disk."""
        return native.NameIds.bytes_for(num_vertices)

    def _pairs(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        source, destination = _tokens_of(batch)
        pair = (source.bytes, source.offsets), (destination.bytes, destination.offsets)
        before = len(self._table)
        sources, destinations, new = self._table.pairs(*pair, fixed=self._fixed)
        names = Tokens(*new)
        if (bad := first_invalid_name(names)) is not None:
            # Search for the first edge that names it only now, as this is the rare case.
            edge = int(np.flatnonzero((sources == before + bad) | (destinations == before + bad))[0])
            raise invalid_name_error(names, bad, batch.locate(edge))
        self._names.append(names)
        return sources, destinations


AnyNumbering: TypeAlias = DenseIds | MappedNumbers | MappedNames


def make_numbering(
    ids: str = "auto",
    *,
    strings: bool = False,
    num_vertices: int | None = None,
    vertices: EdgeSource | None = None,
    fixed: bool = False,
    memory_bytes: int | None = None,
    scratch: Path | None = None,
) -> AnyNumbering:
    """The numbering for the option ``ids`` of ``open_edges``; ``strings``: whether the source has names."""
    if strings:
        return MappedNames(vertices=vertices, fixed=fixed, memory_bytes=memory_bytes, scratch=scratch)
    if ids == "map" or (ids == "auto" and vertices is not None):
        return MappedNumbers(vertices=vertices, fixed=fixed, memory_bytes=memory_bytes)
    if vertices is not None:
        raise DataError(
            f"a list of vertices numbers the ids, but with {given('ids', 'dense')} they are numbers already. Drop one "
            "of the two."
        )
    return DenseIds(num_vertices)


def _tokens_of(batch: EdgeBatch) -> tuple[Tokens, Tokens]:
    if isinstance(batch.source, Tokens) and isinstance(batch.destination, Tokens):
        return batch.source, batch.destination
    raise DataError(f"the ends of edges are numbers, but names are expected. Number them by {given('ids', 'map')}.")
