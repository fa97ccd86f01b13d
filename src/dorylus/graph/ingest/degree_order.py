"""The order of vertices by falling degree, found in a pass over edges on disk."""

import numpy as np
from numpy.typing import NDArray

from dorylus.graph.arrays import IdArray
from dorylus.graph.ingest.pair_spool import PairSpool
from dorylus.graph.ingest.progress import Progress, Tell

BYTES_PER_VERTEX = 12
"""What is in memory at most: a degree and a number, or two numbers and the length of a name."""

STEP = 1 << 20


def degree_order(edges: PairSpool, num_vertices: int, tell: Tell, *, loops: bool = True) -> IdArray:
    """int32 [N], new number -> old: most edges first, in and out, those with as many by their old numbers.

    Edges that are repeated count as often as they come, and those to oneself only with ``loops``.
    """
    keys, total, done = np.zeros(num_vertices, np.int64), edges.num_edges, 0
    for rows, columns, _ in edges.blocks():
        counted = slice(None) if loops else rows != columns
        for ends in (rows, columns):
            np.subtract.at(keys, ends[counted].astype(np.intp), 1)  # numbers of other types take it five times as long
        done += rows.size
        tell(Progress("counting degrees", done, total, "edges"))
    return _sorted_by(keys)


def _sorted_by(keys: NDArray[np.int64]) -> IdArray:
    """The places of ``keys``, least first and stable, sorted within the array itself: it is not needed any more."""
    np.maximum(keys, -(1 << 31), out=keys)
    order = np.empty(keys.size, np.int32)
    steps = [slice(begin, begin + STEP) for begin in range(0, keys.size, STEP)]
    for step in steps:
        keys[step] = keys[step] << 32 | np.arange(step.start, min(step.stop, keys.size))
    keys.sort()
    for step in steps:
        order[step] = keys[step] & 0xFFFFFFFF
    return order
