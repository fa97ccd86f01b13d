"""A store of shards: a partitioned graph as a folder, each server's part memory-mapped by whoever needs it.

A folder as in docs/store-format.md, with the manifest ``shards.json``. It holds ``parts``, the server of every vertex,
and for every server k the arrays of its :class:`~dorylus.partition.Shard`, named ``shard<k>.<array>``. Features, labels
and masks stay in the graph's own store.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dorylus.errors import DataError, GraphError
from dorylus.graph import Graph
from dorylus.graph.array_folder import Kind, checksum, map_arrays, read_manifest, save_folder
from dorylus.graph.arrays import AnyArray
from dorylus.graph.degrees import Degrees
from dorylus.graph.places import Address
from dorylus.partition.partitioning import Partitioning, make_partitioning
from dorylus.partition.reunite import reunite
from dorylus.partition.shard import Ids, Shard, cut_shard
from dorylus.partition.shard_arrays import from_arrays, to_arrays

SHARDS = Kind(
    noun="store of shards",
    cure="Give a folder that dorylus partition or save_shards wrote.",
    manifest="shards.json",
    format="dorylus-shards",
    version=1,
    dtypes=frozenset({"<i8", "<i4", "<f4", "<f8", "|b1"}),
)


@dataclass(frozen=True, eq=False)
class Shards:
    """An opened store of shards, whose arrays become views of the files when they are asked for.

    ``parts`` is the server of every vertex, ``method`` how that was decided, ``structure`` a checksum of the graph.
    """

    folder: Address
    parts: Ids
    method: str
    num_servers: int
    num_edges: int
    directed: bool
    structure: int
    manifest: dict[str, Any]

    @property
    def num_vertices(self) -> int:
        """How many vertices the whole graph has."""
        return self.parts.size

    def shard(self, server: int) -> Shard:
        """The shard of one server."""
        prefix = f"shard{server}."
        try:
            found = map_arrays(self.folder, SHARDS, self.manifest, only=lambda name: name.startswith(prefix))
            arrays = {name.removeprefix(prefix): array for name, array in found.items()}
            return from_arrays(arrays, server, self.num_servers, self.num_vertices, self.directed)
        except (KeyError, ValueError) as error:
            raise _damaged(self.folder, error) from error

    def check(self, graph: Graph) -> None:
        """Refuse a graph that these shards were not cut from; reads every edge."""
        sizes, found = (self.num_vertices, self.num_edges), (graph.num_vertices, graph.num_edges)
        if found == sizes and structure_of(graph) == self.structure:
            return
        differs = "other edges" if found == sizes else f"{found[0]:,} vertices and {found[1]:,} edges"
        raise DataError(
            f"the shards in {self.folder} were cut from a graph of {sizes[0]:,} vertices and {sizes[1]:,} edges, but "
            f"graph {graph.name!r} has {differs}: partition this graph, or open the one they were cut from."
        )

    def graph(self) -> Graph:
        """The graph these shards were cut from, its edges alone, from the shards alone."""
        try:
            graph = reunite(self.shard, self.num_servers)
        except (ValueError, IndexError, GraphError) as error:
            raise _damaged(self.folder, error) from error
        if structure_of(graph) != self.structure:
            raise _damaged(self.folder, "its edges are not those it was made from")
        return graph


def save_shards(path: Address, graph: Graph, partitioning: Partitioning, *, overwrite: bool = False) -> None:
    """Cut the graph and write its shards, one after the other, as a store at ``path``."""
    facts = {
        "num_servers": partitioning.num_parts,
        "method": partitioning.method,
        "num_vertices": graph.num_vertices,
        "num_edges": graph.num_edges,
        "directed": graph.directed,
        "structure": structure_of(graph),
    }
    save_folder(path, SHARDS, facts, _arrays(graph, partitioning), overwrite=overwrite)


def open_shards(path: Address, *, verify: bool = False) -> Shards:
    """The store of shards at ``path``; ``verify`` also reads every byte and compares checksums."""
    manifest = read_manifest(path, SHARDS)
    try:
        arrays = map_arrays(path, SHARDS, manifest, verify=verify, only=lambda name: verify or name == "parts")
        parts, servers, size = arrays["parts"], int(manifest["num_servers"]), int(manifest["num_vertices"])
        if parts.shape != (size,) or (size and not 0 <= parts.min() <= parts.max() < servers):
            raise ValueError(f"parts do not give {size} vertices to {servers} servers")
        facts = str(manifest["method"]), servers, int(manifest["num_edges"]), bool(manifest["directed"])
        return Shards(path, parts, *facts, int(manifest["structure"]), manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, error) from error


def recut(path: Address, out: Address, servers: int, method: str, *, overwrite: bool = False) -> None:
    """Write a store of shards for another number of servers at ``out``, from the shards at ``path`` alone."""
    graph = open_shards(path).graph()
    save_shards(out, graph, make_partitioning(graph, servers, method), overwrite=overwrite)


def structure_of(graph: Graph) -> int:
    """A checksum of a graph's edges and their weights."""
    edges = checksum(graph.indices, checksum(graph.indptr, int(graph.directed)))
    return edges if graph.edge_weight is None else checksum(graph.edge_weight, edges)


def _arrays(graph: Graph, partitioning: Partitioning) -> Iterator[tuple[str, AnyArray]]:
    yield "parts", partitioning.parts
    degrees = Degrees.of(graph)
    for server in range(partitioning.num_parts):
        shard = cut_shard(graph, partitioning.parts, server, degrees=degrees)
        yield from ((f"shard{server}.{name}", array) for name, array in to_arrays(shard).items())


def _damaged(folder: Address, why: object) -> DataError:
    return DataError(f"the store of shards {folder} is damaged: {why}. Partition the graph again.")
