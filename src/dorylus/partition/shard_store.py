"""A store of shards: a partitioned graph as a folder, each server's part memory-mapped by that server.

A folder as in docs/store-format.md, with the manifest ``shards.json``. It holds ``parts``, the server of every vertex,
and for every server k the arrays of its :class:`~dorylus.partition.Shard`, named ``shard<k>.<array>``. Features, labels
and masks stay in the graph's own store. While shards are written, arrays with an entry per vertex are in memory; edges
are read and written in blocks.

:func:`partition_needs` predicts what partitioning under a limit needs: memory, scratch and disk.
"""

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.backends import native
from dorylus.errors import ConfigError, DataError, GraphError, given
from dorylus.graph import (
    CHECKSUM,
    SWITCH,
    TEXT,
    Address,
    ArrayWriter,
    Degrees,
    FolderFiles,
    FolderKind,
    Graph,
    NewFolder,
    OffsetArray,
    check_target,
    checksum,
    compare_checksums,
    files_of,
    inverse,
    is_remote,
    map_arrays,
    new_folder,
    read_manifest,
    whole_number,
    write_lock,
)
from dorylus.partition.edge_reader import (
    PARTS_PER_PASS,
    CutEdges,
    EdgeReader,
    drop_graph_pages,
    read_edges,
    scratch_beside,
)
from dorylus.partition.limit import SLACK, MemoryNeed, check_space, need_of, scratch_space, shards_space, shares_of
from dorylus.partition.paged_shard import PagedCsr, PagedDegrees
from dorylus.partition.partitioning import Partitioning
from dorylus.partition.shard import (
    Csr,
    Ids,
    Shard,
    by_owner,
    edge_names,
    from_arrays,
    join_shards,
    outline,
    side_arrays,
)
from dorylus.process_memory import resident_bytes
from dorylus.progress import ReportStage, StageProgress, silent
from dorylus.units import format_bytes, parse_bytes


def write_shards(folder: NewFolder, reader: EdgeReader, parts: Ids, num_parts: int, tell: ReportStage) -> None:
    """Partition the graph and write the arrays of every server's shard."""
    folder.write("parts", parts)
    graph, counted = reader.graph, PagedDegrees.of(reader.in_edges)
    degrees = Degrees(graph.in_degrees(), counted.weights, counted.loops)
    writer = _ShardWriter(folder, reader, tell)
    for first in range(0, num_parts, PARTS_PER_PASS):
        crossing = CutEdges.of(reader, parts, first, tell, writers=graph.directed)
        servers = range(first, min(first + PARTS_PER_PASS, num_parts))
        if num_parts <= PARTS_PER_PASS:
            ghosts = crossing.num_in_ghosts() + crossing.num_out_ghosts()
            check_space(folder.path, shards_space(graph, num_parts, ghosts), "writing the shards")
        for server in servers:
            sources = by_owner(crossing.sources(server), parts, server)
            targets = by_owner(crossing.targets(server), parts, server) if graph.directed else None
            writer.write(outline(server, parts, degrees, sources, targets))


@dataclass
class _ShardWriter:
    """Writes one shard after the other."""

    folder: NewFolder
    reader: EdgeReader
    tell: ReportStage
    done: int = 0

    def write(self, shard: Shard) -> None:
        """Write the arrays of a shard, selecting its edges from the graph's."""
        prefix = f"shard{shard.server}."
        self.folder.write(f"{prefix}ids", shard.ids)
        self._write_side(shard, "in", prefix, self.reader.in_edges, shard.in_ghosts)
        if shard.directed:
            self._write_side(shard, "out", prefix, self.reader.out_edges, shard.out_ghosts)

    def _write_side(self, shard: Shard, side: str, prefix: str, edges: PagedCsr, ghosts: Ids) -> None:
        for name, array in side_arrays(shard, side).items():
            self.folder.write(prefix + name, array)
        indptr, indices, weight = (prefix + name for name in edge_names(side))
        self.folder.write(indptr, _offsets(edges.csr[0], shard.ids))
        with ExitStack() as files:
            weights = None if edges.csr[2] is None else files.enter_context(self.folder.array(weight, "<f4"))
            columns = files.enter_context(
                self.folder.array(indices, "<i4")
            )  # closed first, so listed first in the manifest
            self._write_edges(edges, shard.ids, np.concatenate([shard.ids, ghosts]), columns, weights)

    def _write_edges(
        self, edges: PagedCsr, ids: Ids, names: Ids, columns: ArrayWriter, weights: ArrayWriter | None
    ) -> None:
        total = self.reader.graph.num_edges * (2 if self.reader.graph.directed else 1)
        for _, indices, values in selected(edges, ids, names):
            columns.write(indices)
            if weights is not None:
                assert values is not None
                weights.write(values)
            self.done += indices.size
            self.tell(StageProgress("writing the shards", self.done, total, "edges"))


def selected(edges: PagedCsr, ids: Ids, names: Ids) -> Iterator[Csr]:
    """The rows of ascending vertices, in blocks; column c is vertex ``names[c]``."""
    place = inverse(names, edges.csr[0].size - 1)
    for _, begin, (near, indices, values) in edges.blocks():
        first, last = np.searchsorted(ids, [begin, begin + near.size - 1])
        if first < last:
            yield native.csr_select(near, indices, ids[first:last] - np.int32(begin), place, names.size, values=values)


def _offsets(indptr: OffsetArray, ids: Ids) -> OffsetArray:
    offsets = np.zeros(ids.size + 1, np.int64)
    np.cumsum(indptr[ids + 1] - indptr[ids], out=offsets[1:])
    return offsets


SHARDS = FolderKind(
    noun="store of shards",
    cure="Give a folder that dorylus partition or save_shards wrote.",
    again="Partition the graph again.",
    manifest="shards.json",
    format="dorylus-shards",
    version=1,
    facts={
        "num_servers": whole_number(),
        "method": TEXT,
        "num_vertices": whole_number(),
        "num_edges": whole_number(),
        "directed": SWITCH,
        "structure": CHECKSUM,
    },
    needed=("parts",),
    dtypes=frozenset({"<i8", "<i4", "<f4", "<f8", "|b1"}),
)


@dataclass(frozen=True, eq=False)
class Shards:
    """An opened store of shards, whose arrays are mapped from the files when they are used.

    ``parts`` is the server of every vertex, ``method`` the partitioning method, ``structure`` a checksum of the graph.
    """

    folder: Address
    parts: Ids
    method: str
    num_servers: int
    num_edges: int
    directed: bool
    structure: int
    manifest: dict[str, Any]
    files: FolderFiles | None = None  # None for a remote folder

    @property
    def num_vertices(self) -> int:
        """How many vertices the whole graph has."""
        return self.parts.size

    def shard(self, server: int) -> Shard:
        """The shard of one server."""
        prefix = f"shard{server}."
        try:
            mapped = map_arrays(
                self.folder, SHARDS, self.manifest, only=lambda name: name.startswith(prefix), files=self.files
            )
            arrays = {name.removeprefix(prefix): array for name, array in mapped.items()}
            return from_arrays(arrays, server, self.num_servers, self.num_vertices, self.directed)
        except KeyError as error:
            why = f"{SHARDS.manifest} lists no array {prefix + error.args[0]!r}"
            raise SHARDS.damaged(self.folder, why) from error
        except ValueError as error:
            raise SHARDS.damaged(self.folder, error) from error

    def check(self, graph: Graph) -> None:
        """Refuse a graph that these shards were not made from; reads every edge."""
        sizes, other = (self.num_vertices, self.num_edges), (graph.num_vertices, graph.num_edges)
        if other == sizes and structure_of(graph) == self.structure:
            return
        differs = "other edges" if other == sizes else f"{other[0]:,} vertices and {other[1]:,} edges"
        raise DataError(
            f"the shards in {self.folder} were cut from a graph of {sizes[0]:,} vertices and {sizes[1]:,} edges, but "
            f"graph {graph.name!r} has {differs}: partition this graph, or open the one they were cut from."
        )

    def graph(self) -> Graph:
        """The graph that these shards were made from, its edges alone."""
        try:
            graph = join_shards(self.shard, self.num_servers)
        except (ValueError, IndexError, GraphError) as error:
            raise SHARDS.damaged(self.folder, error) from error
        if structure_of(graph) != self.structure:
            raise SHARDS.damaged(self.folder, "its edges are not those it was made from")
        return graph


def save_shards(
    path: Address,
    graph: Graph,
    partitioning: Partitioning,
    *,
    overwrite: bool = False,
    memory: int | str | None = None,
    tell: ReportStage = silent,
) -> None:
    """Cut the graph and write its shards, one after the other, as a store at ``path``.

    Edges are read and written in blocks. ``memory`` is what the process may take, page cache and all ("4GiB"); what is
    written is the same. ``tell`` is called with the progress.
    """
    check_target(path, SHARDS, overwrite)
    if not is_remote(path):
        check_space(Path(path).absolute(), shards_space(graph, partitioning.num_parts), "writing the shards")
    shares = shares_of(graph, need_of(graph, "save", partitioning.num_parts, partitioning.method), memory)
    with read_edges(graph, shares, scratch_beside(graph, path)) as reader:
        facts = {
            "num_servers": partitioning.num_parts,
            "method": partitioning.method,
            "num_vertices": graph.num_vertices,
            "num_edges": graph.num_edges,
            "directed": graph.directed,
            "structure": structure_of(graph, reader.in_edges),
        }
        with new_folder(path, SHARDS, overwrite=overwrite) as folder:
            write_shards(folder, reader, partitioning.parts, partitioning.num_parts, tell)
            folder.facts.update(facts)
            graph.check_files()


def save_shards_once(path: Address, graph: Graph, partitioning: Partitioning) -> None:
    """Write the shards of a partitioning unless they exist. ``path`` must be unique to the graph and the partitioning.

    Waits for another process that is writing them. Where that cannot be seen (a file system without locks, a remote
    address), both write the same, and the first to finish wins: no run replaces shards that exist.
    """
    if SHARDS.is_at(path):
        return
    with nullcontext() if is_remote(path) else write_lock(Path(path)):
        try:
            if not SHARDS.is_at(path):
                save_shards(path, graph, partitioning)
        except DataError:
            if not SHARDS.is_at(path):
                raise


def open_shards(path: Address, *, verify: bool = False) -> Shards:
    """The store of shards at ``path``; ``verify`` also reads every byte and compares checksums."""
    manifest = read_manifest(path, SHARDS)
    if verify:
        compare_checksums(path, SHARDS, manifest)
    files = files_of(path, SHARDS, manifest)
    parts = map_arrays(path, SHARDS, manifest, only=lambda name: name == "parts", files=files)["parts"]
    servers, size = manifest["num_servers"], manifest["num_vertices"]
    if parts.shape != (size,) or (size and not 0 <= parts.min() <= parts.max() < servers):
        raise SHARDS.damaged(path, f"parts do not give {size} vertices to {servers} servers")
    facts = {name: manifest[name] for name in ("method", "num_servers", "num_edges", "directed", "structure")}
    return Shards(path, parts, manifest=manifest, files=files, **facts)


def structure_of(graph: Graph, edges: PagedCsr | None = None) -> int:
    """A checksum of a graph's edges and their weights, which may be read in blocks."""
    total = checksum(graph.indptr, int(graph.directed))
    if edges is None:
        total = checksum(graph.indices, total)
        return total if graph.edge_weight is None else checksum(graph.edge_weight, total)
    for _, _, (_, indices, _) in edges.blocks():
        total = checksum(indices, total)
    for _, _, (_, _, weight) in edges.blocks() if graph.edge_weight is not None else ():
        assert weight is not None
        total = checksum(weight, total)
    return total


@dataclass(frozen=True, kw_only=True)
class PartitionNeeds:
    """What partitioning a graph by one method needs at least, and what it will use of the limit and of disks."""

    method: str
    limit: int
    least: int
    worst: MemoryNeed
    block_bytes: int
    scratch_bytes: int
    shards_bytes: int

    def __str__(self) -> str:
        disk = [f"{format_bytes(self.scratch_bytes)} of scratch"] if self.scratch_bytes else []
        disk += [f"{format_bytes(self.shards_bytes)} and ghosts for the shards"] if self.shards_bytes else []
        return (
            f"{self.method}: keeps to {format_bytes(self.limit)}, {format_bytes(self.least)} would do "
            f"({self.worst.vertex_bytes} bytes a vertex); edges in blocks of {format_bytes(self.block_bytes)}"
            + (f"; on disk {', '.join(disk)}" if disk else "")
        )


def partition_needs(
    graph: Graph, servers: int, method: str, memory: int | str, *, out: Address | None = None
) -> PartitionNeeds:
    """What partitioning a graph under a limit needs and, given ``out``, saving its shards there.

    A limit that cannot be kept is refused with one that can; a disk that is too full is refused with the space needed.
    """
    drop_graph_pages(graph)
    steps = [need_of(graph, "divide", servers, method), need_of(graph, "look", servers, method)]
    steps += [need_of(graph, "save", servers, method)] if out is not None else []
    shares = [shares_of(graph, need, memory) for need in steps]
    worst = max(steps, key=lambda need: need.least)
    scratch = 0 if shares[0].in_any_order or method != "stream" else scratch_space(graph, weighted=False)
    shards = 0 if out is None else shards_space(graph, servers)
    beside = scratch_beside(graph, out)
    if scratch:
        check_space(beside, scratch, "sorting the edges")
    if out is not None and not is_remote(out):
        check_space(beside, shards, "writing the shards")
    return PartitionNeeds(
        method=method, limit=parse_bytes(memory), least=resident_bytes() + SLACK + worst.least, worst=worst,
        block_bytes=4 * shares[0].block_edges, scratch_bytes=scratch, shards_bytes=shards,
    )  # fmt: skip


def check_joining(shards: Shards, memory: int | str) -> None:
    """Refuse shards that cannot be joined within a limit: their graph is held in memory."""
    limit, weighted = parse_bytes(memory), "shard0.in_edge_weight" in shards.manifest["arrays"]
    graph = shards.num_edges * (8 if weighted else 4) + 16 * shards.num_vertices
    needed = resident_bytes() + SLACK + graph + 32 * shards.num_edges // shards.num_servers
    if needed > limit:
        raise ConfigError(
            f"{given('memory')} is {limit:,} bytes ({format_bytes(limit)}), but putting the shards in {shards.folder} "
            f"together takes {format_bytes(needed)}: their edges are held in memory. Give more, or partition the "
            "graph's own store."
        )
