"""A shard: the vertices one graph server owns, their edges, and the remote vertices (ghosts) at the other ends.

A shard depends on the graph and on who owns what, not on any model: it can be saved and used by every run.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dorylus import kernels
from dorylus.graph import Graph
from dorylus.graph.adjacency import inverse
from dorylus.graph.degrees import Degrees

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
    graphs, where ``edges`` serve. Both are None where the whole graph is at hand: copying them would gain nothing.
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
    ids, nobody = np.arange(graph.num_vertices, dtype=np.int32), np.zeros(0, np.int32)
    degrees, owners = Degrees.of(graph), np.zeros(2, np.int64)
    sizes = (0, 1, graph.num_vertices, graph.directed)
    return Shard(*sizes, ids, nobody, nobody, owners, owners, degrees, degrees, _edges_of(graph))


def cut_shard(graph: Graph, parts: Ids, server: int, *, edges: bool = True, degrees: Degrees | None = None) -> Shard:
    """The shard of one server when vertex v belongs to server ``parts[v]``.

    Takes the shard's own size and a few numbers a vertex. Without ``edges`` the shard only says whose they are, for
    servers that share the graph's memory. ``degrees`` of the whole graph save counting them again for every server.
    """
    sources = by_owner(_sources(graph, parts, server), parts, server)
    targets = by_owner(_targets(graph, parts, server), parts, server) if graph.directed else None
    shard = outline(server, parts, degrees or Degrees.of(graph), sources, targets)
    if not edges:
        return shard
    held, out = _edges(graph, shard.ids, shard.in_ghosts, shard.out_ghosts)
    return replace(shard, edges=held, out=out)


def outline(server: int, parts: Ids, degrees: Degrees, sources: Ids, targets: Ids | None) -> Shard:
    """The shard of one server but for its edges, from its in-ghosts and, in directed graphs, its out-ghosts."""
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
    near = kernels.csr_select(*arrays, ids, inverse(columns, size), columns.size, values=weights)
    if not graph.directed:
        return near, None
    rows = np.concatenate([ids, targets])
    return near, kernels.csr_select_transpose(*arrays, rows, inverse(ids, size), ids.size, values=weights)


def by_owner(found: NDArray[np.bool_], parts: Ids, server: int) -> Ids:
    """The remote vertices among those found, sorted by (owner, number)."""
    numbers = np.flatnonzero(found & (parts != server)).astype(np.int32)
    return numbers[np.argsort(parts[numbers], kind="stable")]


def _sources(graph: Graph, parts: Ids, server: int) -> NDArray[np.bool_]:
    """Who has an edge to one of the server's vertices."""
    own = np.where(parts == server, 1, -1).astype(np.int8)
    found = np.zeros(graph.num_vertices, np.int8)
    kernels.csr_reach(graph.indptr, graph.indices, own, found)
    return found.astype(np.bool_)


def _targets(graph: Graph, parts: Ids, server: int) -> NDArray[np.bool_]:
    """Who has an edge from one of the server's vertices."""
    size, everyone = graph.num_vertices, np.arange(graph.num_vertices, dtype=np.int32)
    own = np.where(parts == server, 0, -1).astype(np.int32)
    counts = kernels.csr_count(graph.indptr, graph.indices, everyone, own, size, 1)
    return counts.ravel().astype(np.bool_)
