"""Clusters: vertices that move together, and going through them with the in-edges of their members."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from dorylus import kernels
from dorylus.graph.arrays import IdArray, OffsetArray
from dorylus.partition.paged_edges import PagedCsr
from dorylus.partition.reading import Reading


class Clusters(NamedTuple):
    """Vertices that move together: cluster c holds members[starts[c]:starts[c + 1]]; most in-edges first."""

    starts: OffsetArray
    members: IdArray

    @classmethod
    def of(cls, labels: IdArray, degrees: OffsetArray) -> "Clusters":
        """The clusters of vertices that carry the same label, a number below N."""
        number, count = _numbers(labels, degrees)
        vertices = np.arange(len(labels), dtype=np.int32)
        starts, members, _ = kernels.csr_build(number[labels], vertices, count, len(labels))
        return cls(starts, members)

    @property
    def num_clusters(self) -> int:
        """How many clusters there are."""
        return len(self.starts) - 1


def _numbers(labels: IdArray, degrees: OffsetArray) -> tuple[IdArray, int]:
    """(the cluster of each label, by falling number of in-edges, how many there are)."""
    used = np.flatnonzero(np.bincount(labels, minlength=len(labels)))
    edges = np.bincount(labels, weights=degrees, minlength=len(labels))[used]
    number = np.empty(len(labels), np.int32)
    number[used[np.argsort(-edges, kind="stable")]] = np.arange(len(used), dtype=np.int32)
    return number, len(used)


class Visit(NamedTuple):
    """Some clusters that follow one another, from number ``first`` on, and the in-edges of their members.

    Row m of the edges is that of member m or, not ``in_order``, row v that of vertex v.
    """

    first: int
    clusters: Clusters
    indptr: OffsetArray
    indices: IdArray
    in_order: bool

    @property
    def num_edges(self) -> int:
        """How many edges are looked at."""
        return self.indices.size


class Visiting:
    """Goes through clusters as often as is asked for: all at once, or as many as fit into a block."""

    def __init__(self, clusters: Clusters, reading: Reading, edges: PagedCsr | None) -> None:
        self.clusters, self._graph, self._edges = clusters, reading.graph, edges

    def visits(self, *, backwards: bool = False) -> Iterator[Visit]:
        """Every cluster once; ``backwards``, those of the last block first."""
        if self._edges is None:
            yield Visit(0, self.clusters, self._graph.indptr, self._graph.indices, in_order=False)
            return
        starts, members = self.clusters
        for _, begin, (near, indices, _) in self._edges.blocks(backwards=backwards):
            first, last = np.searchsorted(starts, [begin, begin + near.size - 1]).tolist()
            some = Clusters(starts[first : last + 1] - begin, members[begin : begin + near.size - 1])
            yield Visit(first, some, near, indices, in_order=True)


@contextmanager
def visiting(reading: Reading, clusters: Clusters) -> Iterator[Visiting]:
    """The clusters, to be gone through; where rows cannot be asked for in any order, they are sorted first."""
    if reading.in_any_order:
        yield Visiting(clusters, reading, None)
        return
    with reading.in_order(clusters.members, clusters.starts) as edges:
        yield Visiting(clusters, reading, edges)
