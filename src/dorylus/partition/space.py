"""Disk space: what shards and the scratch of sorting take, compared with what is free before anything is written."""

import shutil
from pathlib import Path

from dorylus.errors import DataError
from dorylus.graph import Graph
from dorylus.graph.sizes import format_bytes

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
