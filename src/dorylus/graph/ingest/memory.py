"""How the memory of an ingest is shared out among its parts."""

import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dorylus.errors import ConfigError
from dorylus.graph.canonical import MAX_VERTICES
from dorylus.graph.ingest.batches import Held
from dorylus.graph.sizes import format_bytes

MIB = 1 << 20
NOTHING_HELD = Held()
BLOCK_EDGES = 1 << 18
_SLACK = 96 * MIB  # batches of edges, blocks of sorted ones, files' buffers, and what the interpreter still loads
_SPREAD = 4 * MIB  # what a process has to begin with differs so much from one run to the next
IDS_SHARE = 4  # of the memory, one part in so many is for the table of ids, where there is one
_LEAST = 64 * MIB  # for sorting: below it, runs are so short that merging them takes longer than all else
_UNIT = 3 * 4096  # what the sort reads of a run at least, and whose multiples runs are


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Bytes for each of the parts that are at work at the same time.

    While edges are read, the first sort has ``spool``. While its result is written, it has ``merge`` and the second
    sort ``transpose``; after that the second has ``merge``.
    """

    spool: int
    merge: int
    transpose: int

    @classmethod
    def of(cls, room: int) -> "Shares":
        """The shares of all that there is for sorting."""
        return cls(spool=room, merge=room // 4, transpose=room - room // 4)

    def num_runs(self, spooled_bytes: int, *, directed: bool) -> int:
        """Into how many runs edges of so many bytes are cut at most."""
        run = (min(self.spool, self.transpose) if directed else self.spool) // 3 // _UNIT * _UNIT
        return -(-spooled_bytes // max(run, 1))

    @property
    def most_runs(self) -> int:
        """How many runs can be merged."""
        return self.merge // _UNIT


def shares_of(
    memory_bytes: int,
    *,
    resident: int | None = None,
    ids_bytes: int = 0,
    order_bytes: int = 0,
    held: Held = NOTHING_HELD,
    ids_for: Callable[[int], int] | None = None,
) -> Shares:
    """The shares of a limit, less what the process has (now, if not given) and what ids and a new order may take.

    What is ``held`` to read edges is given back before they are put in order. ``ids_for`` says what the table of a
    number of ids takes.
    """
    taken = (resident_bytes() if resident is None else resident) + _SLACK + ids_bytes
    taken += max(order_bytes, held.num_bytes)
    room = memory_bytes - taken
    if room < _LEAST:
        # Ids get a part of whatever it is.
        least = (taken - ids_bytes + _LEAST + _SPREAD) * memory_bytes // (memory_bytes - ids_bytes)
        part, cure = "", ""
        if held.num_bytes > order_bytes:
            part = f", {format_bytes(held.num_bytes)} of them {held.purpose}"
            cure = f", or {held.cure}"
        elif order_bytes:
            part = f", {format_bytes(order_bytes)} of them to reorder vertices"
        roomy = ""
        if ids_for is not None and ids_bytes:
            theirs = -(-least // MIB) * MIB * ids_bytes // memory_bytes
            num_ids = bisect_right(range(MAX_VERTICES), theirs, key=ids_for) - 1
            roomy = f", which has room for {num_ids:,} different ids"
        raise ConfigError(
            f"memory={memory_bytes:,} bytes ({format_bytes(memory_bytes)}), but {format_bytes(taken)} are taken before "
            f"the first edge is sorted{part}, and sorting needs {format_bytes(_LEAST)}: give at least "
            f"{_whole_mib(least)}{roomy}{cure}."
        )
    return Shares.of(room)


def least_for_ids(ids_bytes: int, *, resident: int, order_bytes: int = 0, held: Held = NOTHING_HELD) -> str:
    """The least limit whose part for ids holds so much, and whose rest is enough."""
    taken = resident + _SLACK + _LEAST + _SPREAD + max(order_bytes, held.num_bytes)
    return _whole_mib(max(IDS_SHARE * ids_bytes, taken * IDS_SHARE // (IDS_SHARE - 1) + 1))


def check_runs(memory_bytes: int, shares: Shares, spooled_bytes: int, *, directed: bool) -> None:
    """Refuses edges that would make more runs than can be merged in the shares of a limit."""
    runs = shares.num_runs(spooled_bytes, directed=directed)
    if runs <= shares.most_runs:
        return
    enough = shares
    while enough.num_runs(spooled_bytes, directed=directed) > enough.most_runs:
        enough = Shares.of(enough.spool + enough.spool // 16)
    raise ConfigError(
        f"memory={memory_bytes:,} bytes ({format_bytes(memory_bytes)}) leaves {format_bytes(shares.spool)} to sort "
        f"{format_bytes(spooled_bytes)} of edges, which makes {runs:,} sorted runs, but {shares.most_runs:,} can be "
        f"merged: give at least {_whole_mib(memory_bytes + enough.spool - shares.spool)}."
    )


def resident_bytes() -> int:
    """What this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _whole_mib(number: int) -> str:
    """An amount that is enough when it is given as it is told: rounded up."""
    return f"{-(-number // MIB)} MiB"
