"""range: contiguous vertex numbers, cut where the edge work is even."""

import numpy as np

from dorylus.graph.arrays import IdArray
from dorylus.graph.ingest.progress import Tell
from dorylus.partition.layout import VERTEX_WORK
from dorylus.partition.reading import Reading


def range_parts(reading: Reading, servers: int, seed: int, tell: Tell) -> IdArray:
    """int32 [N], never falling; every part has a vertex. A vertex's work is its in-edges and a little of its own."""
    graph = reading.graph
    work = graph.in_degrees() + VERTEX_WORK
    middle = np.cumsum(work) - work / 2
    number = np.arange(servers)
    starts = np.searchsorted(middle, work.sum() * number / servers)
    starts = np.maximum.accumulate(starts - number) + number  # a vertex heavier than a share must not skip a part
    starts = np.minimum(starts, graph.num_vertices - servers + number)
    return np.repeat(number.astype(np.int32), np.diff(starts, append=graph.num_vertices))
