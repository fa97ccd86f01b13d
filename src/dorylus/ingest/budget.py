"""The memory and disk budget of an ingest, checked before any work and again when the edges were read.

``shares_of`` divides the memory limit among the parts of the ingest; ``Space`` is its peak use of the disk.
"""

import shutil
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dorylus.errors import ConfigError, DataError, given
from dorylus.graph import MAX_VERTICES
from dorylus.ingest.attributes import Attributes
from dorylus.ingest.batches import EdgeSource, Numbering, ReaderMemory
from dorylus.ingest.numbering import DenseIds, IdTableFullError
from dorylus.ingest.reordering import BYTES_PER_VERTEX
from dorylus.ingest.settings import IngestSettings
from dorylus.process_memory import resident_bytes
from dorylus.units import format_bytes

MIB = 1 << 20
NO_READER_MEMORY = ReaderMemory()
BLOCK_EDGES = 1 << 18
_SLACK = 96 * MIB  # batches and sorted blocks of edges, file buffers, and modules that are imported later
_TABLE_SLACK = 48 * MIB  # after a table was read: its modules and buffers are part of what is resident
_SPREAD = 4 * MIB  # variation of the initial size of a process from run to run
IDS_SHARE = 4  # the table of ids, if there is one, gets 1 / IDS_SHARE of the memory
_LEAST = 64 * MIB  # for sorting: with less, runs are so short that merging dominates the time
_UNIT = 3 * 4096  # the smallest read of the sort; run sizes are multiples of it


@dataclass(frozen=True, kw_only=True)
class IngestShares:
    """The bytes of each part that is active at the same time.

    While edges are read, the first sort has ``spool``. While its result is written, it has ``merge`` and the second
    sort ``transpose``; after that the second has ``merge``.
    """

    spool: int
    merge: int
    transpose: int

    @classmethod
    def of(cls, room: int) -> "IngestShares":
        """The shares of ``room``, the memory for sorting."""
        return cls(spool=room, merge=room // 4, transpose=room - room // 4)

    def num_runs(self, spooled_bytes: int, *, directed: bool) -> int:
        """The most sorted runs that ``spooled_bytes`` of edges make."""
        run = (min(self.spool, self.transpose) if directed else self.spool) // 3 // _UNIT * _UNIT
        return -(-spooled_bytes // max(run, 1))

    @property
    def most_runs(self) -> int:
        """The most runs that can be merged."""
        return self.merge // _UNIT


def shares_of(
    memory_bytes: int,
    *,
    resident: int | None = None,
    ids_bytes: int = 0,
    order_bytes: int = 0,
    held: ReaderMemory = NO_READER_MEMORY,
    ids_for: Callable[[int], int] | None = None,
    after_table: bool = False,
) -> IngestShares:
    """The shares of a limit after the resident memory (by default the current), the table of ids and the vertex order.

    ``held`` is the memory for reading, which is released before the vertices are reordered. ``ids_for`` is the size of
    a table by its number of ids. ``after_table``: a table of vertices was read before.
    """
    used = (resident_bytes() if resident is None else resident) + ids_bytes
    used += _TABLE_SLACK if after_table else _SLACK
    used += max(order_bytes, held.num_bytes)
    room = memory_bytes - used
    if room < _LEAST:
        # The part of the ids grows with the limit.
        least = (used - ids_bytes + _LEAST + _SPREAD) * memory_bytes // (memory_bytes - ids_bytes)
        part, cure = "", ""
        if held.num_bytes > order_bytes:
            part = f", {format_bytes(held.num_bytes)} of them {held.purpose}"
            cure = f", or {held.cure}"
        elif order_bytes:
            part = f", {format_bytes(order_bytes)} of them to reorder vertices"
        roomy = ""
        if ids_for is not None and ids_bytes:
            table_bytes = -(-least // MIB) * MIB * ids_bytes // memory_bytes
            num_ids = bisect_right(range(MAX_VERTICES), table_bytes, key=ids_for) - 1
            roomy = f", which has room for {num_ids:,} different ids"
        raise ConfigError(
            f"{given('memory')} is {memory_bytes:,} bytes ({format_bytes(memory_bytes)}), but {format_bytes(used)} are "
            f"in use before the first edge is sorted{part}, and sorting needs {format_bytes(_LEAST)}: give at least "
            f"{_whole_mib(least)}{roomy}{cure}."
        )
    return IngestShares.of(room)


def least_for_ids(ids_bytes: int, *, resident: int, order_bytes: int = 0, held: ReaderMemory = NO_READER_MEMORY) -> str:
    """The least limit whose part for ids is ``ids_bytes`` and whose rest is enough."""
    used = resident + _SLACK + _LEAST + _SPREAD + max(order_bytes, held.num_bytes)
    return _whole_mib(max(IDS_SHARE * ids_bytes, used * IDS_SHARE // (IDS_SHARE - 1) + 1))


def check_runs(memory_bytes: int, shares: IngestShares, spooled_bytes: int, *, directed: bool) -> None:
    """Refuse edges that would make more sorted runs than can be merged within the shares of a limit."""
    runs = shares.num_runs(spooled_bytes, directed=directed)
    if runs <= shares.most_runs:
        return
    enough = shares
    while enough.num_runs(spooled_bytes, directed=directed) > enough.most_runs:
        enough = IngestShares.of(enough.spool + enough.spool // 16)
    raise ConfigError(
        f"{given('memory')} is {memory_bytes:,} bytes ({format_bytes(memory_bytes)}), which leaves "
        f"{format_bytes(shares.spool)} to sort "
        f"{format_bytes(spooled_bytes)} of edges, which makes {runs:,} sorted runs, but {shares.most_runs:,} can be "
        f"merged: give at least {_whole_mib(memory_bytes + enough.spool - shares.spool)}."
    )


def _whole_mib(number: int) -> str:
    """A number of bytes rounded up to whole MiB, as a limit that is enough."""
    return f"{-(-number // MIB)} MiB"


_WHOLE_BLOCKS = 128 << 10  # partly filled last blocks of about 20 files, the manifest and the folder


class EdgeCounts(NamedTuple):
    """The amounts to write: edges read, edges sorted per direction, vertices, and the bytes of ids and names."""

    num_edges: int
    num_stored: int
    num_vertices: int
    ids_bytes: int = 0
    names_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Space:
    """The bytes of each part of an ingest.

    Scratch files: ``pairs`` (edges as read; only with reordering), ``spool`` (a sort's runs, freed as they are merged),
    ``names`` of vertices, ``dealt`` (rows that are being reordered). Arrays: ``csr`` of one direction, which includes
    ``offsets``; ``rows`` of vertices; their ``ids``.
    """

    pairs: int
    spool: int
    names: int
    dealt: int
    csr: int
    offsets: int
    rows: int
    ids: int
    directed: bool

    @classmethod
    def of(
        cls,
        counts: EdgeCounts,
        *,
        weighted: bool,
        directed: bool,
        reordered: bool,
        features_bytes: int = 0,
        rows_bytes: int = 0,
    ) -> "Space":
        """The bytes for these counts; ``rows_bytes`` include the features."""
        record, offsets = record_bytes(weighted), 8 * (counts.num_vertices + 1)
        return cls(
            pairs=counts.num_edges * record if reordered else 0,
            spool=counts.num_stored * record,
            names=counts.names_bytes,
            dealt=max(features_bytes, counts.ids_bytes) if reordered else 0,
            csr=counts.num_stored * (record - 4) + offsets,
            offsets=offsets,
            rows=rows_bytes,
            ids=counts.ids_bytes,
            directed=directed,
        )

    @property
    def store(self) -> int:
        """The bytes of all arrays of the store."""
        return self.csr * (2 if self.directed else 1) + self.rows + self.ids

    @property
    def most(self) -> int:
        """The peak of all files together."""
        kept = self.names + self.rows + (self.ids if self.pairs else 0)
        dealing = self.pairs + kept + self.dealt
        sorting = self.pairs + kept + self.spool
        return max(dealing, sorting, kept + self._writing, self.store + self.names)

    @property
    def _writing(self) -> int:
        """The peak while a sort's file shrinks and arrays grow; with two directions, a second file grows too."""
        # An edge is freed in the file before it is written to an array, where it takes 4 bytes less: disk use falls
        # with every edge. Only the offsets may all precede the first edge, if all other vertices have none.
        last = self.spool + self.offsets
        # While the first of two directions is written, each edge moves from the first sort's file to the second's: in
        # the end the whole spool, beside the csr. Writing the second direction beside that csr takes more.
        return self.csr + last if self.directed else last


def record_bytes(weighted: bool) -> int:
    """The bytes of an edge in a scratch file."""
    return 12 if weighted else 8


def check_space(folder: Path, space: Space, already: int = 0) -> None:
    """Refuse to continue if the free space is less than the peak minus the bytes ``already`` written."""
    free, most = shutil.disk_usage(folder).free, space.most + _WHOLE_BLOCKS
    if free + already < most:
        taken = f"{format_bytes(already)} of it are taken and " if already else ""
        raise DataError(
            f"{folder.parent} needs {format_bytes(most)} of space for the store, which will have "
            f"{format_bytes(space.store)}, and for scratch files beside it, but {taken}{format_bytes(free)} are free. "
            "Make room, or write the store to a larger disk."
        )


@dataclass(frozen=True, kw_only=True)
class IngestBudget:
    """The limits of one ingest to ``folder``; ``resident``: the process's initial size; ``ids``: the numbering's share.

    ``held`` is the memory that the source needs, ``ids_for`` the size of the numbering's table by its number of ids.
    """

    folder: Path
    settings: IngestSettings
    attributes: Attributes
    weighted: bool
    resident: int
    ids: int
    held: ReaderMemory = NO_READER_MEMORY
    ids_for: Callable[[int], int] | None = None

    def shares(self, num_vertices: int) -> IngestShares:
        """The shares beside the order of ``num_vertices``; a ConfigError if the limit is too small."""
        order = BYTES_PER_VERTEX * num_vertices if self._reordered else 0
        return shares_of(
            self.settings.memory_bytes,
            resident=self.resident,
            ids_bytes=self.ids,
            order_bytes=order,
            held=self.held,
            ids_for=self.ids_for,
            after_table=self.attributes.of_table,
        )

    def check_before(self, source: EdgeSource, known: int | None) -> None:
        """Refuse an ingest that cannot succeed, by the counts of edges and vertices known before reading."""
        num_edges, num_vertices = getattr(source, "num_edges", None) or 0, known or 0
        ids = 8 * num_vertices if self._reordered else 0
        stored = num_edges * (2 if self.settings.undirected else 1)
        self._check(EdgeCounts(num_edges, stored, num_vertices, ids), already=0)

    def check_spooled(
        self, spooled_bytes: int, num_read: int, num_vertices: int, numbering: Numbering, *, arrays_bytes: int
    ) -> None:
        """The same check when all edges were read: ``spooled_bytes`` and ``arrays_bytes`` are on disk."""
        stored = num_read * (2 if self.settings.undirected else 1)
        if not self._reordered:  # sorted runs have no repeats; the last run is still in memory
            most = spooled_bytes + self.shares(num_vertices).spool // 3
            stored = min(stored, most // record_bytes(self.weighted))
        names = int(getattr(numbering, "scratch_bytes", 0))
        ids = names or (8 * num_vertices if self._reordered or not isinstance(numbering, DenseIds) else 0)
        already = spooled_bytes + names + arrays_bytes
        self._check(EdgeCounts(num_read, stored, num_vertices, ids, names), already)

    @property
    def _reordered(self) -> bool:
        return self.settings.reorder != "none"

    def _check(self, counts: EdgeCounts, already: int) -> None:
        shares, directed = self.shares(counts.num_vertices), not self.settings.undirected
        space = Space.of(
            counts,
            weighted=self.weighted,
            directed=directed,
            reordered=self._reordered,
            features_bytes=self.attributes.features_bytes,
            rows_bytes=self.attributes.rows_bytes(counts.num_vertices),
        )
        check_runs(self.settings.memory_bytes, shares, space.spool, directed=directed)
        check_space(self.folder, space, already)


def too_many_ids(error: IdTableFullError, settings: IngestSettings, resident: int, held: ReaderMemory) -> ConfigError:
    """The error for ids that exceed their part of the memory, with a limit that is enough."""
    memory_bytes, order_bytes = settings.memory_bytes, 0
    if settings.reorder != "none":
        order_bytes = BYTES_PER_VERTEX * error.num_ids
    least = least_for_ids(error.num_bytes, resident=resident, order_bytes=order_bytes, held=held)
    return ConfigError(
        f"{given('memory')} is {memory_bytes:,} bytes ({format_bytes(memory_bytes)}), of which a part in {IDS_SHARE} "
        f"is for ids, but there are about {error.num_ids:,} different ids, whose table takes "
        f"{format_bytes(error.num_bytes)}: give at least {least}, or number the vertices from 0 beforehand and pass "
        f"{given('ids', 'dense')}."
    )
