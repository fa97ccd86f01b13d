"""Shards written as they are cut: of a shard, what has an entry a vertex is in memory, its edges pass by in blocks."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from dorylus import kernels
from dorylus.graph.adjacency import inverse
from dorylus.graph.array_folder import NewFolder
from dorylus.graph.array_writer import ArrayWriter
from dorylus.graph.arrays import OffsetArray
from dorylus.graph.degrees import Degrees
from dorylus.graph.ingest.progress import Progress, Tell
from dorylus.partition.across import TOGETHER, Across
from dorylus.partition.paged_edges import PagedCsr, PagedDegrees
from dorylus.partition.reading import Reading
from dorylus.partition.shard import Csr, Ids, Shard, by_owner, outline
from dorylus.partition.shard_arrays import edge_names, side_arrays
from dorylus.partition.space import check_space, shards_space


def write_shards(folder: NewFolder, reading: Reading, parts: Ids, num_parts: int, tell: Tell) -> None:
    """Cuts the graph and writes the arrays of every server's shard."""
    folder.write("parts", parts)
    graph, found = reading.graph, PagedDegrees.of(reading.in_edges)
    degrees = Degrees(graph.in_degrees(), found.weights, found.loops)
    writer = _ShardWriter(folder, reading, tell)
    for first in range(0, num_parts, TOGETHER):
        across = Across.of(reading, parts, first, tell, writers=graph.directed)
        servers = range(first, min(first + TOGETHER, num_parts))
        if num_parts <= TOGETHER:
            ghosts = across.num_read() + across.num_written()
            check_space(folder.path, shards_space(graph, num_parts, ghosts), "writing the shards")
        for server in servers:
            sources = by_owner(across.sources(server), parts, server)
            targets = by_owner(across.targets(server), parts, server) if graph.directed else None
            writer.write(outline(server, parts, degrees, sources, targets))


@dataclass
class _ShardWriter:
    """Writes one shard after the other."""

    folder: NewFolder
    reading: Reading
    tell: Tell
    done: int = 0

    def write(self, shard: Shard) -> None:
        """Writes the arrays of a shard, cutting its edges out of the graph's on the way."""
        prefix = f"shard{shard.server}."
        self.folder.write(f"{prefix}ids", shard.ids)
        self._write_side(shard, "in", prefix, self.reading.in_edges, shard.in_ghosts)
        if shard.directed:
            self._write_side(shard, "out", prefix, self.reading.out_edges, shard.out_ghosts)

    def _write_side(self, shard: Shard, side: str, prefix: str, edges: PagedCsr, ghosts: Ids) -> None:
        for name, array in side_arrays(shard, side).items():
            self.folder.write(prefix + name, array)
        indptr, indices, weight = (prefix + name for name in edge_names(side))
        self.folder.write(indptr, _offsets(edges.csr[0], shard.ids))
        with ExitStack() as files:
            weights = None if edges.csr[2] is None else files.enter_context(self.folder.array(weight, "<f4"))
            columns = files.enter_context(self.folder.array(indices, "<i4"))  # the first to end, and to be noted
            self._write_edges(edges, shard.ids, np.concatenate([shard.ids, ghosts]), columns, weights)

    def _write_edges(
        self, edges: PagedCsr, ids: Ids, names: Ids, columns: ArrayWriter, weights: ArrayWriter | None
    ) -> None:
        total = self.reading.graph.num_edges * (2 if self.reading.graph.directed else 1)
        for _, found, values in selected(edges, ids, names):
            columns.write(found)
            if weights is not None:
                assert values is not None
                weights.write(values)
            self.done += found.size
            self.tell(Progress("writing the shards", self.done, total, "edges"))


def selected(edges: PagedCsr, ids: Ids, names: Ids) -> Iterator[Csr]:
    """The rows of ascending vertices, some at a time; column c stands for vertex ``names[c]``."""
    place = inverse(names, edges.csr[0].size - 1)
    for _, begin, (near, indices, values) in edges.blocks():
        first, last = np.searchsorted(ids, [begin, begin + near.size - 1])
        if first < last:
            yield kernels.csr_select(near, indices, ids[first:last] - np.int32(begin), place, names.size, values=values)


def _offsets(indptr: OffsetArray, ids: Ids) -> OffsetArray:
    offsets = np.zeros(ids.size + 1, np.int64)
    np.cumsum(indptr[ids + 1] - indptr[ids], out=offsets[1:])
    return offsets
