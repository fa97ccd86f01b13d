"""A shard in the row order of one partition plan: the edges, features and ghosts that a graph server's tasks read.

Rows are the server's own vertices by interval, needed ones first; in a matrix that is gathered from, rows of ghosts
follow. Edges are renumbered accordingly. Everything is computed on first use and kept.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import native
from dorylus.graph import (
    Adjacency,
    AnyArray,
    FloatArray,
    Graph,
    Norm,
    SparseFeatures,
    StoredSparseRows,
    StoredVertices,
    drop_pages,
    inverse,
    to_float32,
)
from dorylus.paging import PagedArray
from dorylus.partition.ghosts import Ghosts, SendList, make_ghosts
from dorylus.partition.partition_plan import PartitionPlan
from dorylus.partition.shard import Csr, Ids, Shard
from dorylus.pipeline import Reads

Mask = NDArray[np.bool_]
VertexSource = Graph | StoredVertices  # of a shard: with edges at least where the shard has none


def source_of(shard: Shard, graph: VertexSource) -> tuple[Csr, Ids | None]:
    """The in-edges as they are stored, and the vertices of their columns (None: rows and columns are vertices)."""
    if shard.edges is None:
        assert isinstance(graph, Graph)
        return (graph.indptr, graph.indices, graph.edge_weight), None
    return shard.edges, None if shard.num_servers == 1 else np.concatenate([shard.ids, shard.in_ghosts])


def in_edges(shard: Shard, graph: VertexSource, order: Ids, columns: Ids, self_loops: bool) -> Csr:
    """The in-edges of own vertices in this order, with columns for these vertices."""
    (indptr, indices, weight), names = source_of(shard, graph)
    rows, place = order, inverse(columns, shard.num_vertices)
    if names is not None:
        rows, place = positions(shard, order), place[names]
    return native.csr_select(indptr, indices, rows, place, columns.size, values=weight, self_loops=self_loops)


def out_edges(shard: Shard, graph: VertexSource, order: Ids, columns: Ids, needed: Mask, self_loops: bool) -> Csr:
    """The out-edges of own vertices of a directed graph, those that end in a needed column's vertex."""
    loops = needed[: order.size] if self_loops else False
    if shard.out is None:
        (indptr, indices, weight), _ = source_of(shard, graph)
        ends, row_of = np.where(needed, columns, np.int32(-1)), inverse(order, shard.num_vertices)
        return native.csr_select_transpose(indptr, indices, ends, row_of, order.size, values=weight, self_loops=loops)
    indptr, indices, weight = shard.out
    place = place_of_needed(columns, needed, shard.num_vertices)[np.concatenate([shard.ids, shard.out_ghosts])]
    rows = positions(shard, order)
    return native.csr_select(indptr, indices, rows, place, columns.size, values=weight, self_loops=loops)


def only_into(edges: Csr, columns: Ids, new_columns: Ids, needed: Mask, num_vertices: int) -> Csr:
    """The same rows, columns renumbered, without those that are not needed."""
    indptr, indices, weight = edges
    place = place_of_needed(new_columns, needed, num_vertices)[columns]
    rows = np.arange(indptr.size - 1, dtype=np.int32)
    return native.csr_select(indptr, indices, rows, place, new_columns.size, values=weight)


def place_of_needed(columns: Ids, needed: Mask, num_vertices: int) -> Ids:
    """The column of every vertex, -1 for those that have none or are not needed."""
    place = inverse(columns, num_vertices)
    place[columns[~needed]] = -1
    return place


def positions(shard: Shard, vertices: Ids) -> Ids:
    """The positions of these own vertices in the shard."""
    return np.searchsorted(shard.ids, vertices).astype(np.int32)


def needed_ghosts(shard: Shard, graph: VertexSource, deepest: NDArray[np.int8]) -> NDArray[np.int8]:
    """The deepest level that needs each in-ghost (-1: none): one less than that of its deepest reader here."""
    (indptr, indices, _), names = source_of(shard, graph)
    readers = np.full(indptr.size - 1, -1, np.int8)
    readers[shard.ids if names is None else slice(None)] = deepest[shard.ids] - np.int8(1)
    need = np.full(shard.num_vertices if names is None else names.size, -1, np.int8)
    if shard.in_ghosts.size:
        native.csr_reach(indptr, indices, readers, need)
    return need[shard.in_ghosts] if names is None else need[shard.ids.size :]


Between: TypeAlias = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""For each own interval: the intervals at the other ends of its edges, and the number of edges to each."""


def in_edges_between(shard: Shard, graph: VertexSource, plan: PartitionPlan, level: int) -> Between:
    """Where the in-edges of each own interval come from, of those that end in a row needed at a level (-1: all)."""
    place = np.where(plan.deepest >= level, _own_intervals(shard, plan), np.int32(-1))
    return _counted(shard, graph, plan, place, plan.interval)


def out_edges_between(shard: Shard, graph: VertexSource, plan: PartitionPlan, level: int) -> Between:
    """Where the out-edges of each own interval go to, of those that end in a row needed at a level (-1: all)."""
    ends = np.where(plan.deepest >= level, plan.interval, np.int32(-1))
    place = _own_intervals(shard, plan)
    if not shard.directed:  # out-edges are in-edges reversed
        return _counted(shard, graph, plan, place, ends)
    sizes = len(plan.mine(shard.server)), plan.num_intervals
    if shard.out is None:
        (indptr, indices, _), _ = source_of(shard, graph)
        return _pairs(native.csr_count(indptr, indices, ends, place, *reversed(sizes)).T)
    names = np.concatenate([shard.ids, shard.out_ghosts])
    return _pairs(native.csr_count(*shard.out[:2], place[shard.ids], ends[names], *sizes))


def _counted(
    shard: Shard, graph: VertexSource, plan: PartitionPlan, rows: NDArray[np.int32], columns: NDArray[np.int32]
) -> Between:
    """Count the in-edges of own vertices by groups, given for every vertex, of their ends."""
    (indptr, indices, _), names = source_of(shard, graph)
    if names is not None:
        rows, columns = rows[shard.ids], columns[names]
    return _pairs(native.csr_count(indptr, indices, rows, columns, len(plan.mine(shard.server)), plan.num_intervals))


def _own_intervals(shard: Shard, plan: PartitionPlan) -> NDArray[np.int32]:
    """For every vertex the number its interval has on this server, -1 for those of other servers."""
    place = np.full(shard.num_vertices, -1, np.int32)
    place[shard.ids] = plan.interval[shard.ids] - plan.mine(shard.server).start
    return place


def _pairs(counts: NDArray[np.int64]) -> Between:
    found = [np.flatnonzero(row) for row in counts]
    return [(others, row[others]) for row, others in zip(counts, found, strict=True)]


T = TypeVar("T")
_Sparse = SparseFeatures | StoredSparseRows
Scale = NDArray[np.float32] | None


class LocalShard:
    """One server's shard laid out by a partition plan. Features are the graph's; so are edges if the shard has none.

    ``mine`` are the intervals it owns, ``ids`` the vertices of own rows and then of in-ghosts, ``ghosts`` and
    ``out_ghosts`` where the rows of ghosts lie, forward and backward. ``paged_features``: the features as they lie in
    a file, under a memory limit.
    """

    paged_features: PagedArray | None = None

    def __init__(self, shard: Shard, plan: PartitionPlan, graph: VertexSource) -> None:
        self.shard, self.partition_plan, self.graph = shard, plan, graph
        self.server, self.mine = shard.server, plan.mine(shard.server)
        self.layout = plan.layouts[shard.server]
        self.ghosts = self._place(shard.in_ghosts, needed_ghosts(shard, graph, plan.deepest))
        self.out_ghosts = self._place(shard.out_ghosts, plan.deepest[shard.out_ghosts])
        if not shard.directed:  # levels that need every row then share one adjacency with their gradient
            self.out_ghosts = replace(self.out_ghosts, whole=self.ghosts.ids)
        self.ids = self._with_own(self.ghosts.ids)
        self._in_order = bool(np.array_equal(self.layout.order, np.arange(shard.num_vertices, dtype=np.int32)))
        self._made: dict[object, object] = {}

    @property
    def num_vertices(self) -> int:
        """How many vertices the server owns."""
        return self.layout.order.size

    @property
    def num_intervals(self) -> int:
        """How many intervals the whole cluster has."""
        return self.partition_plan.num_intervals

    def out_ids(self, level: int | None = None) -> Ids:
        """The vertices of own rows and then of out-ghosts, in the order they have at a level (None: all needed)."""
        ghosts = self.out_ghosts.ids_at(level)
        return self.ids if ghosts is self.ghosts.ids else self._once("out ids", lambda: self._with_own(ghosts))

    def adjacency(self, norm: Norm, self_loops: bool) -> Adjacency:
        """The in-edges of own vertices, weighted as in the whole graph; columns are own rows, then in-ghosts."""
        return self._once(("adjacency", norm, self_loops), lambda: self._adjacency(norm, self_loops))

    def transpose(self, norm: Norm, self_loops: bool, level: int | None = None) -> Adjacency:
        """The out-edges of own vertices, weighted as forward; columns are own rows, then out-ghosts.

        With a level only edges that end in a row needed there, and out-ghosts in the order they have there.
        """
        level = None if self._needed(level).all() else level
        return self._once(("transpose", norm, self_loops, level), lambda: self._transpose(norm, self_loops, level))

    def dense_features(self, *, ghosts: bool = False, keep: bool = True) -> AnyArray:
        """The dense features of own vertices and, with ``ghosts``, of in-ghosts, in the graph's own precision.

        ``keep``: for the next call.
        """
        features, ids = self.graph.features, self.ids if ghosts else self.layout.order
        if self._in_order and isinstance(features, np.ndarray):
            return features
        kept = self._made.get("dense")
        if not isinstance(kept, np.ndarray) or len(kept) < len(ids):
            kept = features.to_dense(ids) if isinstance(features, _Sparse) else features[ids]
            if keep:
                self._made["dense"] = kept
        return kept if len(kept) == len(ids) else kept[: len(ids)]

    def wide_features(self, *, keep: bool = True) -> FloatArray:
        """The features of own vertices and in-ghosts as kernels need them: dense and float32; ``keep`` as above."""
        kept = self._made.get("wide")
        if isinstance(kept, np.ndarray):
            return kept
        made = to_float32(self.dense_features(ghosts=True, keep=keep and not self.half_features))
        if keep and self.half_features:
            self._made["wide"] = made
        return made

    @property
    def has_dense_features(self) -> bool:
        """Whether features are dense as they are."""
        return not isinstance(self.graph.features, _Sparse)

    @property
    def half_features(self) -> bool:
        """Whether features are dense, and stored as float16."""
        features = self.graph.features
        return not isinstance(features, _Sparse) and features.dtype == np.float16

    def feature_rows(self, begin: int, end: int, columns: slice = slice(None)) -> FloatArray:
        """Some columns of some own rows of the features, dense and float32; of paged ones, rows that are in memory."""
        features = self.graph.features
        if isinstance(features, _Sparse):
            return features.to_dense(self.layout.order[begin:end])[:, columns]
        return to_float32(self.dense_features()[begin:end, columns])

    def feature_columns(self, columns: slice) -> FloatArray:
        """Some columns of the dense features of own vertices and in-ghosts."""
        features = self.graph.features
        assert not isinstance(features, _Sparse)
        return to_float32(features[:, columns][self.ids])

    def sparse_features(self) -> SparseFeatures:
        """The features of own vertices, sparse as the graph has them."""
        features = self.graph.features
        assert isinstance(features, _Sparse)
        if self._in_order and isinstance(features, SparseFeatures):
            return features
        return self._once("sparse", lambda: features.permute(self.layout.order))

    def drop_features(self) -> None:
        """Drop the reordered features: they are not used again."""
        self._made.pop("dense", None)
        self._made.pop("wide", None)

    def release_files(self, *, keep_features: bool, keep_edges: bool) -> None:
        """Drop pages of the graph's files that are not read again: where rows have another order, all was copied.

        ``keep_features`` and ``keep_edges``: whether they are read again in the graph's own order.
        """
        features = self.graph.features
        if not self._in_order and keep_features:  # copy now: the files are released next
            self.sparse_features() if isinstance(features, _Sparse) else self.wide_features()
        if isinstance(features, np.ndarray) and not (self._in_order and keep_features):
            drop_pages(features)
        if isinstance(self.graph, Graph) and not (self._in_order and keep_edges):
            for array in (self.graph.indices, self.graph.edge_weight):
                if array is not None:
                    drop_pages(array)

    def reads(self) -> Reads:
        """Which intervals each own interval gathers from and which gather from it, always including itself."""
        sources = self._neighbours(self.edges_between())
        return Reads(self.mine, sources, self._neighbours(self.out_edges_between()) if self.shard.directed else sources)

    def edges_between(self, level: int = -1) -> Between:
        """For each own interval: the intervals its in-edges come from, and how many come from each.

        With a level, of the edges that end in a row needed there.
        """
        return self._once(
            ("between", level), lambda: in_edges_between(self.shard, self.graph, self.partition_plan, level)
        )

    def out_edges_between(self, level: int = -1) -> Between:
        """For each own interval: the intervals its out-edges go to, and how many go to each; ``level`` as above."""
        return self._once(
            ("out between", level), lambda: out_edges_between(self.shard, self.graph, self.partition_plan, level)
        )

    def send_list(self, ghosts: Ghosts) -> SendList:
        """Which own rows go to a peer that has these ghosts."""
        first, last = (int(ghosts.first[end]) for end in (self.mine.start, self.mine.stop))
        rows = {id(ids): self._rows_of(ids[first:last]) for ids in (ghosts.ids, ghosts.whole)}
        orders = tuple(rows[id(ghosts.ids_at(level))] for level in range(len(ghosts.ends)))
        return SendList(ghosts, first, rows[id(ghosts.ids)], orders)

    def _adjacency(self, norm: Norm, self_loops: bool) -> Adjacency:
        row_scale, col_scale = self._scales(norm, self_loops, self.ids, out=False)
        return Adjacency(*self._edges(self_loops), self._own(row_scale), col_scale)

    def _transpose(self, norm: Norm, self_loops: bool, level: int | None) -> Adjacency:
        row_scale, col_scale = self._scales(norm, self_loops, self.out_ids(level), out=True)
        return Adjacency(*self._out_edges(self_loops, level), self._own(col_scale), row_scale)

    def _edges(self, self_loops: bool) -> Csr:
        if self._in_order and not self_loops:
            return source_of(self.shard, self.graph)[0]
        make = partial(in_edges, self.shard, self.graph, self.layout.order, self.ids, self_loops)
        return self._once(("edges", self_loops), make)

    def _out_edges(self, self_loops: bool, level: int | None) -> Csr:
        shard, columns, needed = self.shard, self.out_ids(level), self._needed(level)
        if shard.directed:
            make = partial(out_edges, shard, self.graph, self.layout.order, columns, needed, self_loops)
        elif level is None:
            return self._edges(self_loops)
        else:
            make = partial(only_into, self._edges(self_loops), self.ids, columns, needed, shard.num_vertices)
        return self._once(("out edges", self_loops, level), make)

    def _needed(self, level: int | None) -> NDArray[np.bool_]:
        """Which columns of a level's transpose stand for rows needed there."""
        ids = self.out_ids(level)
        return np.ones(ids.size, np.bool_) if level is None else self.partition_plan.deepest[ids] >= level

    def _scales(self, norm: Norm, self_loops: bool, ids: Ids, *, out: bool) -> tuple[Scale, Scale]:
        shard = self.shard
        ghosts, degrees = (shard.out_ghosts, shard.out_degrees) if out else (shard.in_ghosts, shard.degrees)
        place = inverse(np.concatenate([shard.ids, ghosts]), shard.num_vertices)
        return degrees.of_vertices(place[ids]).scales(norm, self_loops, ids)

    def _own(self, scale: Scale) -> Scale:
        return scale if scale is None or len(scale) == self.num_vertices else scale[: self.num_vertices]

    def _neighbours(self, between: Between) -> tuple[frozenset[int], ...]:
        """The intervals at the other ends and the own one; equal sets are one object: dense graphs have many."""
        sets: dict[frozenset[int], frozenset[int]] = {}
        found = (frozenset([own, *others.tolist()]) for own, (others, _) in zip(self.mine, between, strict=True))
        return tuple(sets.setdefault(each, each) for each in found)

    def _place(self, ghosts: Ids, level: NDArray[np.int8]) -> Ghosts:
        plan = self.partition_plan
        return make_ghosts(ghosts, plan.interval[ghosts], level, plan.num_intervals, plan.num_layers)

    def _with_own(self, ghosts: Ids) -> Ids:
        return np.concatenate([self.layout.order, ghosts]) if ghosts.size else self.layout.order

    def _rows_of(self, vertices: Ids) -> Ids:
        shard = self.shard
        rows = self._once("rows", lambda: inverse(positions(shard, self.layout.order), shard.ids.size))
        return rows[positions(shard, vertices)]

    def _once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]
