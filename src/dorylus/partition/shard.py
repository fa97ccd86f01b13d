"""A shard: the vertices one graph server owns, their edges, and the remote vertices (ghosts) at the other ends.

A shard depends on the graph and its partitioning, not on any model: it can be saved and used by every run. Here are
also a shard as named arrays, as a store of shards holds it, and the graph that all shards joined give.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import native
from dorylus.graph import AnyArray, Degrees, Graph, inverse

Ids: TypeAlias = NDArray[np.int32]
Csr: TypeAlias = tuple[NDArray[np.int64], Ids, NDArray[np.float32] | None]


@dataclass(frozen=True, eq=False)
class Shard:
    """One server's part of a graph. Vertices have the graph's numbers; ``ids`` are the own ones, ascending.

    In-ghosts are the remote sources of own vertices' in-edges, out-ghosts the remote destinations of their out-edges,
    both sorted by (owner, number): those of server k are ``in_ghosts[in_owners[k]:in_owners[k + 1]]``. Undirected
    graphs have one array for both.

    ``edges`` (indptr, indices, weights) are the in-edges of own vertices: row r is vertex ids[r]; columns count own
    vertices first, then in-ghosts. ``out`` are their out-edges in the same form, with out-ghosts; None in undirected
    graphs, where ``edges`` serve. Both are None where the whole graph is in memory: a copy would gain nothing.
    """

    server: int
    num_servers: int
    num_vertices: int  # of the whole graph
    directed: bool
    ids: Ids
    in_ghosts: Ids
    out_ghosts: Ids
    in_owners: NDArray[np.int64]
    out_owners: NDArray[np.int64]
    degrees: Degrees  # of own vertices, then in-ghosts
    out_degrees: Degrees  # of own vertices, then out-ghosts
    edges: Csr | None = None
    out: Csr | None = None


def whole_shard(graph: Graph) -> Shard:
    """The shard of a single server: the graph itself, nothing copied."""
    ids, no_ghosts = np.arange(graph.num_vertices, dtype=np.int32), np.zeros(0, np.int32)
    degrees, owners = Degrees.of(graph), np.zeros(2, np.int64)
    sizes = (0, 1, graph.num_vertices, graph.directed)
    return Shard(*sizes, ids, no_ghosts, no_ghosts, owners, owners, degrees, degrees, _edges_of(graph))


def make_shard(graph: Graph, parts: Ids, server: int, *, edges: bool = True, degrees: Degrees | None = None) -> Shard:
    """The shard of one server when vertex v belongs to server ``parts[v]``.

    Needs the shard's own size and a few numbers per vertex. Without ``edges`` the shard has only vertices and ghosts,
    for servers that share the graph's memory. ``degrees`` of the whole graph save counting them again for every server.
    """
    sources = by_owner(_sources(graph, parts, server), parts, server)
    targets = by_owner(_targets(graph, parts, server), parts, server) if graph.directed else None
    shard = outline(server, parts, degrees or Degrees.of(graph), sources, targets)
    if not edges:
        return shard
    held, out = _edges(graph, shard.ids, shard.in_ghosts, shard.out_ghosts)
    return replace(shard, edges=held, out=out)


def outline(server: int, parts: Ids, degrees: Degrees, sources: Ids, targets: Ids | None) -> Shard:
    """The shard of one server without its edges, from its in-ghosts and, in directed graphs, its out-ghosts."""
    ids = np.flatnonzero(parts == server).astype(np.int32)
    near = degrees.of_vertices(np.concatenate([ids, sources]))
    bounds = np.arange(int(parts.max()) + 2)
    directed, targets = targets is not None, sources if targets is None else targets
    return Shard(
        server,
        num_servers=bounds.size - 1,
        num_vertices=parts.size,
        directed=directed,
        ids=ids,
        in_ghosts=sources,
        out_ghosts=targets,
        in_owners=np.searchsorted(parts[sources], bounds),
        out_owners=np.searchsorted(parts[targets], bounds),
        degrees=near,
        out_degrees=degrees.of_vertices(np.concatenate([ids, targets])) if directed else near,
    )


def _edges_of(graph: Graph) -> Csr:
    return graph.indptr, graph.indices, graph.edge_weight


def _edges(graph: Graph, ids: Ids, sources: Ids, targets: Ids) -> tuple[Csr, Csr | None]:
    size, arrays, weights = graph.num_vertices, (graph.indptr, graph.indices), graph.edge_weight
    columns = np.concatenate([ids, sources])
    near = native.csr_select(*arrays, ids, inverse(columns, size), columns.size, values=weights)
    if not graph.directed:
        return near, None
    rows = np.concatenate([ids, targets])
    return near, native.csr_select_transpose(*arrays, rows, inverse(ids, size), ids.size, values=weights)


def by_owner(mask: NDArray[np.bool_], parts: Ids, server: int) -> Ids:
    """The remote vertices in a mask, sorted by (owner, number)."""
    numbers = np.flatnonzero(mask & (parts != server)).astype(np.int32)
    return numbers[np.argsort(parts[numbers], kind="stable")]


def _sources(graph: Graph, parts: Ids, server: int) -> NDArray[np.bool_]:
    """The vertices with an edge to one of the server's vertices."""
    own = np.where(parts == server, 1, -1).astype(np.int8)
    reached = np.zeros(graph.num_vertices, np.int8)
    native.csr_reach(graph.indptr, graph.indices, own, reached)
    return reached.astype(np.bool_)


def _targets(graph: Graph, parts: Ids, server: int) -> NDArray[np.bool_]:
    """The vertices with an edge from one of the server's vertices."""
    size, all_vertices = graph.num_vertices, np.arange(graph.num_vertices, dtype=np.int32)
    own = np.where(parts == server, 0, -1).astype(np.int32)
    counts = native.csr_count(graph.indptr, graph.indices, all_vertices, own, size, 1)
    return counts.ravel().astype(np.bool_)


_EDGES = ("indptr", "indices", "edge_weight")
_PARTS = ("ghosts", "owners", "counts", "weights", "loops", *_EDGES)


def side_arrays(shard: Shard, side: str) -> dict[str, AnyArray]:
    """The arrays of a side, "in" or "out", except those of its edges."""
    ghosts, owners = getattr(shard, f"{side}_ghosts"), getattr(shard, f"{side}_owners")
    degrees = shard.degrees if side == "in" else shard.out_degrees
    parts = (ghosts, owners, degrees.counts, degrees.weights, degrees.loops)
    return {name: array for name, array in zip(_names(side), parts, strict=False) if array is not None}


def edge_names(side: str) -> list[str]:
    """The names of a side's offsets, columns and weights."""
    return [f"{side}_{part}" for part in _EDGES]


def from_arrays(
    arrays: Mapping[str, AnyArray], server: int, num_servers: int, num_vertices: int, directed: bool
) -> Shard:
    """The shard made of these arrays; raises KeyError or ValueError if they do not fit together."""
    ids = arrays["ids"]
    ghosts, owners, degrees, edges = _side(arrays, "in", ids, num_servers)
    out = _side(arrays, "out", ids, num_servers) if directed else (ghosts, owners, degrees, None)
    return Shard(
        server,
        num_servers,
        num_vertices,
        directed,
        ids,
        in_ghosts=ghosts,
        out_ghosts=out[0],
        in_owners=owners,
        out_owners=out[1],
        degrees=degrees,
        out_degrees=out[2],
        edges=edges,
        out=out[3],
    )


def _names(side: str) -> list[str]:
    return [f"{side}_{part}" for part in _PARTS]


def _side(arrays: Mapping[str, AnyArray], side: str, ids: Ids, num_servers: int) -> tuple[Ids, AnyArray, Degrees, Csr]:
    parts: list[Any] = [arrays[name] if "weight" not in name else arrays.get(name) for name in _names(side)]
    ghosts, owners, counts, weights, loops, indptr, indices, edge_weight = parts
    columns = ids.size + ghosts.size
    if (counts.size, loops.size, indptr.size, owners.size) != (columns, columns, ids.size + 1, num_servers + 1):
        raise ValueError(f"arrays of a shard with {ids.size} vertices and {ghosts.size} ghosts have other sizes")
    return ghosts, owners, Degrees(counts, weights, loops), (indptr, indices, edge_weight)


def join_shards(shard_of: Callable[[int], Shard], num_servers: int) -> Graph:
    """The graph whose shards these are, its edges alone; needs memory for the graph and one shard."""
    first = shard_of(0)
    indptr = _offsets(shard_of, num_servers, first.num_vertices)
    indices = np.empty(indptr[-1], np.int32)
    weighted = first.edges is not None and first.edges[2] is not None
    weights = np.empty(indices.size, np.float32) if weighted else None
    for server in range(num_servers):
        entries, columns, values = _rows_in_graph(shard_of(server), indptr)
        indices[entries] = columns
        if weights is not None:
            weights[entries] = values
    return Graph(indptr, indices, edge_weight=weights, directed=first.directed, trust="everything")


def _offsets(shard_of: Callable[[int], Shard], num_servers: int, num_vertices: int) -> AnyArray:
    offsets = np.zeros(num_vertices + 1, np.int64)
    for server in range(num_servers):
        shard = shard_of(server)
        offsets[1:][shard.ids] = shard.degrees.counts[: shard.ids.size]
    return np.cumsum(offsets, out=offsets)


def _rows_in_graph(shard: Shard, indptr: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """(entries of the graph's CSR, columns in the graph's numbers, weights) of a shard's in-edges."""
    assert shard.edges is not None
    rows, names = np.arange(shard.ids.size, dtype=np.int32), np.concatenate([shard.ids, shard.in_ghosts])
    held, indices, weight = shard.edges
    offsets, columns, values = native.csr_select(held, indices, rows, names, shard.num_vertices, values=weight)
    shift = np.repeat(indptr[shard.ids] - offsets[:-1], np.diff(offsets))
    return shift + np.arange(columns.size), columns, values
