"""DenseIds numbers for whatever ids the input has: taken as they are, or given in the order in which ids first appear.

``original()`` gives the ids back in the order of their numbers, block after block. ``bytes_for(num_vertices)`` tells
what a numbering keeps in memory. One that would pass its ``memory_bytes`` is refused (:class:`IdTableFullError`) when the
rest of the input was counted: the refusal says how many ids there are.

Names that a store can hold: UTF-8 without NUL bytes, looked at as they get their numbers.

DenseIds numbers for names, and the choice of a numbering.
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
from dorylus.ingest.batches import EdgeBatch, EdgeSource, Ends, Tokens, first_bad, format_id, refusal
from dorylus.ingest.scratch import NameScratch

BLOCK_IDS = 1 << 16
UNLIMITED = 2**63 - 1


BITS = 16
MARGIN = 1.02  # five times the error
_ALPHA = 0.7213 / (1 + 1.079 / (1 << BITS))
_PIECE_IDS = 1 << 16
_PIECE_BYTES = 1 << 18
_BASE = 0x9E3779B97F4A7C15  # odd, and so of a long period


class DistinctIds:
    """Counts ids, each once."""

    def __init__(self) -> None:
        self._ranks = np.zeros(1 << BITS, np.uint8)

    def add(self, ids: Ends) -> None:
        """Counts these too."""
        if isinstance(ids, Tokens):
            self._add_names(ids)
            return
        for begin in range(0, len(ids), _PIECE_IDS):
            self._add_keys(ids[begin : begin + _PIECE_IDS].astype(np.uint64))

    def most(self) -> int:
        """As many as there are, or a little more."""
        free = int(np.count_nonzero(self._ranks == 0))
        count = self._ranks.size
        found = _ALPHA * count * count / float(np.sum(np.ldexp(1.0, -self._ranks.astype(np.int64))))
        if found <= 2.5 * count and free:
            found = count * float(np.log(count / free))
        return int(found * MARGIN) + 1

    def _add_keys(self, keys: NDArray[np.uint64]) -> None:
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys ^= keys >> np.uint64(31)
        rest = (keys << np.uint64(BITS)) | np.uint64(1 << (BITS - 1))
        ranks = (65 - np.frexp(rest.astype(np.float64))[1]).astype(np.uint8)  # zeros before the first one, and one
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
    """A number for each name: its bytes are the coefficients of a polynomial, modulo 2^64."""
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
    """Ids that do not fit into the memory for them: about ``num_ids``, whose table takes ``num_bytes``."""

    def __init__(self, found: DistinctIds, limit_bytes: int, bytes_for: Callable[[int], int]) -> None:
        self._found, self._limit, self._bytes_for = found, limit_bytes, bytes_for
        self.num_ids = found.most()
        self.num_bytes = bytes_for(self.num_ids)
        super().__init__(
            f"the ids of about {self.num_ids:,} vertices take {self.num_bytes:,} bytes, but {limit_bytes:,} bytes may "
            "be used for them: give more memory, or number the vertices from 0 beforehand and pass "
            f"{given('ids', 'dense')}."
        )

    def with_rest(self, rest: Iterable[EdgeBatch]) -> "IdTableFullError":
        """The same when the ids of the rest of the input were counted, too."""
        for batch in rest:
            self._found.add(batch.source)
            self._found.add(batch.destination)
        return IdTableFullError(self._found, self._limit, self._bytes_for)


class DenseIds:
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
        cure = "N" if self._given is None else f"Give a larger {given('num_vertices')}, or n"
        raise DataError(
            f"{batch.told(position)} leads out of the numbers 0 to {end - 1:,}. {cure}umber any other ids by "
            f"{given('ids', 'map')}."
        )


class NumberedByAppearance(ABC):
    """Numbers for ids in the order of ``vertices`` first, then of appearance: source before destination.

    With ``fixed`` an edge may only lead between the ``vertices`` given.
    """

    def __init__(self, table: native.NumberIds | native.NameIds, limit_bytes: int) -> None:
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
        numbers = None
        with suppress(OverflowError):
            numbers = self._pairs(batch)
        if numbers is None:  # outside of the handler, which would keep the batch
            raise self._full(batch)
        if self._fixed:
            refuse_unknown(batch, *numbers, len(self._ids))
        return numbers

    def _begin(self, vertices: EdgeSource | None, fixed: bool) -> None:
        """Numbers the vertices that are listed."""
        batches = iter(vertices or ())
        for batch in batches:
            before = len(self._ids)
            try:
                numbers = self.ends(batch)[0]
            except IdTableFullError as error:
                raise error.with_rest(batches) from error
            refuse_repeats(batch, numbers, before)
        self._fixed = fixed

    def _full(self, batch: EdgeBatch) -> DataError:
        """The refusal of a table that may not grow."""
        if len(self._ids) >= MAX_VERTICES:
            return DataError(
                f"there are more than {MAX_VERTICES:,} different ids: a graph has at most so many vertices."
            )
        found = DistinctIds()
        for ids in chain(self.original(), (batch.source, batch.destination)):
            found.add(ids)
        return IdTableFullError(found, self._limit, self.bytes_for)

    @abstractmethod
    def original(self) -> Iterator[Ends]:
        """The ids, by number."""

    @staticmethod
    @abstractmethod
    def bytes_for(num_vertices: int) -> int:
        """What the table of so many ids takes."""

    @abstractmethod
    def _pairs(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The numbers as the table gives them; OverflowError where it may not grow."""


class MappedNumbers(NumberedByAppearance):
    """Numbers for any whole numbers."""

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
        """What the table of so many ids takes."""
        return native.NumberIds.bytes_for(num_vertices)

    def _pairs(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return self._table.pairs(*numbers_of(batch), fixed=self._fixed)


def numbers_of(batch: EdgeBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both ends of a batch whose ids are numbers."""
    if isinstance(batch.source, Tokens) or isinstance(batch.destination, Tokens):
        raise DataError(
            f"the edges have names for ends, but numbers were asked for. Number names by {given('ids', 'strings')}."
        )
    return batch.source, batch.destination


def refuse_repeats(batch: EdgeBatch, numbers: NDArray[np.int32], before: int) -> None:
    """A list of vertices names each once."""
    repeated = np.flatnonzero(numbers != before + np.arange(len(numbers)))
    if repeated.size:
        position = int(repeated[0])
        raise DataError(
            f"the list of vertices names {format_id(batch.source[position])} twice, again at {batch.place(position)}. List "
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
            f"{batch.told(position)} has the end {format_id(ends[position])}, which is not among the {num_vertices:,} "
            "vertices given. Add it to them, or drop the edge."
        )


class MappedNames(NumberedByAppearance):
    """Numbers for names.

    The table holds 128 bits a name; the names lie in a scratch file in ``scratch`` (default: the system's folder).
    """

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
        """What the names take on disk."""
        return self._names.num_bytes

    def original(self) -> Iterator[Tokens]:
        """The names, by number; the offsets of each block begin at 0."""
        return self._names.blocks()

    def close(self) -> None:
        """Give the scratch file's space back."""
        self._names.close()

    @staticmethod
    def bytes_for(num_vertices: int) -> int:
        """What the table of so many names takes; the names lie on disk."""
        return native.NameIds.bytes_for(num_vertices)

    def _pairs(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        source, destination = _tokens_of(batch)
        pair = (source.bytes, source.offsets), (destination.bytes, destination.offsets)
        before = len(self._table)
        sources, destinations, new = self._table.pairs(*pair, fixed=self._fixed)
        names = Tokens(*new)
        if (bad := first_bad(names)) is not None:
            # Looked for only now: the first edge that names it.
            edge = int(np.flatnonzero((sources == before + bad) | (destinations == before + bad))[0])
            raise refusal(names, bad, batch.place(edge))
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
    """The numbering for ``ids`` as given to ``open_edges``, whose result says whether they are ``strings``."""
    if strings:
        return MappedNames(vertices=vertices, fixed=fixed, memory_bytes=memory_bytes, scratch=scratch)
    if ids == "map" or (ids == "auto" and vertices is not None):
        return MappedNumbers(vertices=vertices, fixed=fixed, memory_bytes=memory_bytes)
    if vertices is not None:
        raise DataError(
            f"a list of vertices gives numbers to ids, but {given('ids', 'dense')} says they have them. Drop one of "
            "both."
        )
    return DenseIds(num_vertices)


def _tokens_of(batch: EdgeBatch) -> tuple[Tokens, Tokens]:
    if isinstance(batch.source, Tokens) and isinstance(batch.destination, Tokens):
        return batch.source, batch.destination
    raise DataError(f"the edges have numbers for ends, but names were asked for. Number them by {given('ids', 'map')}.")
