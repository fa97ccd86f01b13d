"""The memory and disk space that partitioning needs, and how a memory limit is divided.

Under a limit no memory grows with the number of edges: they are read in blocks of a tenth of the available memory. Two
blocks are in memory while one is processed, a third holds the result; up to six are being written to scratch, while a
sort has a fifth of the memory. Disk space for shards and for the scratch of sorting is compared with the free space
before anything is written.
"""

import ctypes
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from dorylus.errors import ConfigError, DataError, given
from dorylus.graph import Graph
from dorylus.process_memory import resident_bytes
from dorylus.units import format_bytes, parse_bytes

MIB = 1 << 20
SLACK = 32 * MIB  # for file buffers, and modules that are still to be imported
BLOCKS = 10  # the number of parts that the memory for edges is divided into
SMALLEST, USUAL = 1 << 20, 1 << 24  # edges of a block
SORTING = 64 * MIB  # with less, merging the short sorted runs dominates
LARGEST_CLUSTER = 1 / 32  # of a mean part
VERTEX_BYTES = {"hash": 40, "range": 56, "stream": 112, "metis": 0}  # of the arrays with an entry per vertex
METIS_LINK_BYTES = 160
_MMAP_THRESHOLD = -3  # of mallopt

PartitionStep = Literal["divide", "look", "save"]


@dataclass(frozen=True, kw_only=True)
class PartitionShares:
    """What reading edges may use. ``in_any_order``: all edges may be in memory, for access in any order."""

    block_edges: int
    limited: bool = False
    in_any_order: bool = True
    sort_bytes: int = 0
    merge_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """What one step needs beside the memory of the process: per vertex, per edge of a block, and the largest block."""

    what: str
    num_vertices: int
    vertex_bytes: int
    edge_bytes: int
    block_edges: int
    sorts: bool
    held: int = 0  # at any limit
    cure: str = ""

    @property
    def buffers(self) -> int:
        """The fewest bytes for edges."""
        return max(BLOCKS * self.edge_bytes * self.block_edges, SORTING if self.sorts else 0)

    @property
    def least(self) -> int:
        """The fewest bytes in total."""
        return self.held + self.num_vertices * self.vertex_bytes + self.buffers


def need_of(graph: Graph, step: PartitionStep, servers: int, method: str) -> MemoryNeed:
    """What a step needs: to assign the vertices ("divide"), to measure the quality ("look"), or to save the shards."""
    longest = int(np.diff(graph.indptr).max(initial=0))
    weighted = graph.edge_weight is not None
    block, sorts, held, cure = max(SMALLEST, longest), False, 0, ""
    if step == "divide":
        what, vertex_bytes = f"dividing the vertices by {method}", VERTEX_BYTES[method]
        if method == "stream":
            block, sorts = max(block, int(LARGEST_CLUSTER * graph.num_edges / servers)), True
            cure = ", or use the method 'range' or 'hash', which take less"
        if method == "metis":
            held = METIS_LINK_BYTES * graph.num_edges * (2 if graph.directed else 1)
            block, cure = 0, ", or use the method 'stream', which does not hold the edges"
    elif step == "look":
        what, vertex_bytes = "counting cut edges", 40
    else:
        what, vertex_bytes = "cutting the shards", (104 if graph.directed else 72) + 16 * weighted
        sorts = graph.directed
    edge_bytes = 8 if weighted and step == "save" else 4
    return MemoryNeed(
        what=what, num_vertices=graph.num_vertices, vertex_bytes=vertex_bytes, edge_bytes=edge_bytes,
        block_edges=block, sorts=sorts, held=held, cure=cure,
    )  # fmt: skip


def shares_of(graph: Graph, need: MemoryNeed, memory: int | str | None) -> PartitionShares:
    """How a limit, less the memory of the process, is divided; a limit that cannot be kept is refused."""
    usual = max(USUAL, graph.num_vertices)
    if memory is None:
        return PartitionShares(block_edges=usual)
    return_freed_memory()
    stored = 0 if graph.files is None else graph.files.bytes_in_memory
    limit, taken = parse_bytes(memory), resident_bytes() + SLACK + stored
    check_limit(limit, taken, need, stored)
    room = limit - taken - need.least + need.buffers
    block = max(need.block_edges, min(usual, room // (BLOCKS * need.edge_bytes)))
    in_any_order = need.sorts and room >= 4 * graph.num_edges + SORTING
    return PartitionShares(
        block_edges=block, limited=True, in_any_order=in_any_order, sort_bytes=room // 3, merge_bytes=room // 5
    )


def return_freed_memory() -> None:
    """Make glibc return the memory of freed large arrays to the system; by default it keeps up to 32 MiB of each."""
    library = ctypes.CDLL(None)
    with suppress(AttributeError):  # another C library
        library.mallopt(_MMAP_THRESHOLD, MIB)
        library.malloc_trim(0)


def check_limit(limit: int, taken: int, need: MemoryNeed, stored: int = 0) -> None:
    """Refuse a limit that a step cannot keep, and name one that it can. ``stored``: bytes of a store in memory."""
    needed = taken + need.least
    if needed <= limit:
        return
    parts = [f"{format_bytes(taken - stored)} for the process"]
    if stored:
        parts.append(f"{format_bytes(stored)} for the store, which lies in memory")
    if need.held:
        parts.append(f"{format_bytes(need.held)} for what METIS makes of the edges")
    if need.vertex_bytes:
        parts.append(f"{need.vertex_bytes} bytes for each of {need.num_vertices:,} vertices")
    if need.buffers:
        parts.append(f"{format_bytes(need.buffers)} of buffers for edges")
    raise ConfigError(
        f"{given('memory')} is {limit:,} bytes ({format_bytes(limit)}), but {need.what} takes {format_bytes(needed)}: "
        f"{', '.join(parts)}. Give at least {-(-needed // MIB) + 4}MiB{need.cure}."
    )


ENDS_BYTES = 8  # of the two ends of an edge in a sort


def scratch_space(graph: Graph, *, weighted: bool) -> int:
    """The bytes of scratch for sorting all edges: unsorted, and sorted."""
    weight = 4 if weighted else 0
    return graph.num_edges * (ENDS_BYTES + weight + 4 + weight)


def shards_space(graph: Graph, servers: int, num_ghosts: int = 0) -> int:
    """The bytes of a store of shards with this many ghosts in total, of both directions."""
    weighted, sides = graph.edge_weight is not None, 2 if graph.directed else 1
    of_edge, of_column = (8, 17) if weighted else (4, 9)
    own = graph.num_vertices * (8 + sides * (8 + of_column)) + servers * 8 * sides * (servers + 2)
    return own + sides * graph.num_edges * of_edge + num_ghosts * (4 + of_column)


def check_space(folder: Path, needed: int, what: str) -> None:
    """Refuse to begin if less disk space is free than is needed."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(
            f"{what} takes {format_bytes(needed)} in {folder}, but {format_bytes(free)} are free. Make room, or choose "
            "a place on a larger disk."
        )
