"""What cutting a graph takes: bytes a vertex, buffers for edges, disk; and how a memory limit is shared out.

Under a limit nothing is held that grows with the edges: they come in blocks, a tenth of the room each. Two are in
memory while one is worked on, a third holds what is made of it; up to six are on their way to scratch, while a sort
that hands them on has a fifth of the room.

Disk space: what shards and the scratch of sorting take, compared with what is free before anything is written.
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
from dorylus.sizes import format_bytes, parse_bytes

MIB = 1 << 20
SLACK = 32 * MIB  # buffers of files, and what the interpreter still loads
BLOCKS = 10  # that the room is cut into
SMALLEST, USUAL = 1 << 20, 1 << 24  # edges of a block
SORTING = 64 * MIB  # below it, runs are so short that merging them takes longer than all else
LARGEST_CLUSTER = 1 / 32  # of a mean part
VERTEX_BYTES = {"hash": 40, "range": 56, "stream": 112, "metis": 0}  # of the arrays with an entry a vertex
METIS_LINK_BYTES = 160
_MMAP_THRESHOLD = -3  # of mallopt

Step = Literal["divide", "look", "save"]


@dataclass(frozen=True, kw_only=True)
class PartitionShares:
    """What reading edges may take. ``in_any_order``: all of them may be in memory, for access in any order."""

    block_edges: int
    limited: bool = False
    in_any_order: bool = True
    sort_bytes: int = 0
    merge_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """What one step takes beside what the process has: bytes a vertex, bytes an edge of a block, the largest block."""

    what: str
    num_vertices: int
    vertex_bytes: int
    edge_bytes: int
    block_edges: int
    sorts: bool
    held: int = 0  # whatever the limit
    cure: str = ""

    @property
    def buffers(self) -> int:
        """The least bytes for edges."""
        return max(BLOCKS * self.edge_bytes * self.block_edges, SORTING if self.sorts else 0)

    @property
    def least(self) -> int:
        """The least bytes in all."""
        return self.held + self.num_vertices * self.vertex_bytes + self.buffers


def need_of(graph: Graph, step: Step, servers: int, method: str) -> MemoryNeed:
    """What a step takes: to divide the vertices, to look at the outcome, or to save the shards."""
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
    """How a limit is shared out, less what the process has now; a limit that cannot be kept is refused."""
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
    """From now on, what is freed of large arrays goes back to the system; glibc keeps up to 32 MiB of each else."""
    library = ctypes.CDLL(None)
    with suppress(AttributeError):  # another library of C
        library.mallopt(_MMAP_THRESHOLD, MIB)
        library.malloc_trim(0)


def check_limit(limit: int, taken: int, need: MemoryNeed, stored: int = 0) -> None:
    """Refuses a limit that a step cannot keep, with the one that it can; ``stored``: a store that lies in memory."""
    wanted = taken + need.least
    if wanted <= limit:
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
        f"{given('memory')} is {limit:,} bytes ({format_bytes(limit)}), but {need.what} takes {format_bytes(wanted)}: "
        f"{', '.join(parts)}. Give at least {-(-wanted // MIB) + 4}MiB{need.cure}."
    )


ENDS_BYTES = 8  # of an edge that is sorted


def scratch_space(graph: Graph, *, weighted: bool) -> int:
    """Bytes that sorting all edges takes: spooled, and then sorted."""
    weight = 4 if weighted else 0
    return graph.num_edges * (ENDS_BYTES + weight + 4 + weight)


def shards_space(graph: Graph, servers: int, num_ghosts: int = 0) -> int:
    """Bytes of a store of shards with so many ghosts in all, of both directions."""
    weighted, sides = graph.edge_weight is not None, 2 if graph.directed else 1
    of_edge, of_column = (8, 17) if weighted else (4, 9)
    own = graph.num_vertices * (8 + sides * (8 + of_column)) + servers * 8 * sides * (servers + 2)
    return own + sides * graph.num_edges * of_edge + num_ghosts * (4 + of_column)


def check_space(folder: Path, needed: int, what: str) -> None:
    """Refuses to begin where less is free than is needed."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(
            f"{what} takes {format_bytes(needed)} in {folder}, but {format_bytes(free)} are free. Make room, or choose "
            "a place on a larger disk."
        )
