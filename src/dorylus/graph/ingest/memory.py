"""How the memory of an ingest is shared out among its parts, and whether there is disk enough."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from dorylus.errors import ConfigError, DataError
from dorylus.graph.sizes import format_bytes

MIB = 1 << 20
BLOCK_EDGES = 1 << 18
_SLACK = 96 * MIB  # batches of edges, blocks of sorted ones, files' buffers, and what the interpreter still loads
_LEAST = 64 * MIB  # for sorting: below it, runs are so short that merging them takes longer than all else


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Bytes for each of the parts that are at work at the same time.

    While edges are read, the first sort has ``spool``. While its result is written, it has ``merge`` and the second
    sort ``transpose``; after that the second has ``merge``.
    """

    spool: int
    merge: int
    transpose: int


def shares_of(memory_bytes: int, *, ids_bytes: int = 0) -> Shares:
    """The shares of a limit, less what the process has now and what the table of ids may take."""
    taken = resident_bytes() + _SLACK + ids_bytes
    room = memory_bytes - taken
    if room < _LEAST:
        raise ConfigError(
            f"memory={memory_bytes:,} bytes ({format_bytes(memory_bytes)}), but {format_bytes(taken)} are taken before "
            f"the first edge is sorted, and sorting needs {format_bytes(_LEAST)}: give at least "
            f"{format_bytes(taken + _LEAST)}."
        )
    return Shares(spool=room, merge=room // 4, transpose=room - room // 4)


def resident_bytes() -> int:
    """What this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def check_space(folder: Path, needed: int) -> None:
    """Refuses to begin where less than ``needed`` bytes are free."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(
            f"writing the store takes about {format_bytes(needed)} in {folder}, its scratch file included, but "
            f"{format_bytes(free)} are free. Make room, or give a place on a larger disk."
        )


def space_for(num_edges: int, *, weighted: bool, undirected: bool) -> int:
    """Bytes that edges take on disk while they are written: a scratch file, and arrays that grow as it shrinks."""
    stored, weight = num_edges * (2 if undirected else 1), 4 if weighted else 0
    scratch, array = stored * (8 + weight), stored * (4 + weight)
    return scratch + array
