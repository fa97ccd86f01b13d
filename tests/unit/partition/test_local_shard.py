import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import Cluster, clusters, dense_matrix, in_a_new_process, large_graph, partitioned, peak_memory

import dorylus
from dorylus.backends import native
from dorylus.errors import GraphError
from dorylus.graph import Adjacency, SparseFeatures, adjacency
from dorylus.graph.adjacency_matrix import Degrees
from dorylus.partition import (
    LocalShard,
    Partitioning,
    make_partition_plan,
    make_shard,
    open_shards,
    save_shards,
    whole_shard,
)

norms = st.sampled_from(["symmetric", "mean", "none"])
UNTOUCHED = np.float32(np.nan)  # the value of a row that was not sent: a test would notice that it is read


def spmm(edges: Adjacency, x: np.ndarray) -> np.ndarray:
    out = np.full((edges.num_vertices, x.shape[1]), UNTOUCHED)
    weights = {"values": edges.values, "row_scale": edges.row_scale, "col_scale": edges.col_scale}
    native.spmm(edges.indptr, edges.indices, x, out, 0, edges.num_vertices, **weights)
    return out


def exchange(cluster: Cluster, level: int, matrices: list[np.ndarray], *, backward: bool) -> None:
    """Every server sends every peer the rows that it needs of each interval at a level."""
    for sender, receiver in cluster.pairs():
        ghosts = receiver.out_ghosts if backward else receiver.ghosts
        sends, target = sender.send_list(ghosts), matrices[receiver.server]
        for interval in sender.mine:
            message = matrices[sender.server][sends.rows(level, interval)]
            begin, end = (receiver.num_vertices + row for row in ghosts.rows(level, interval))
            target[begin:end] = message


def own_rows(server: LocalShard, level: int) -> np.ndarray:
    """Which of a server's rows are needed at a level."""
    rows = np.zeros(server.num_vertices, bool)
    for interval in range(server.layout.num_intervals):
        rows[slice(*server.layout.rows(level, interval))] = True
    return rows


def filled(server: LocalShard, x: np.ndarray, level: int, num_ghosts: int) -> np.ndarray:
    """A matrix with own rows and ghosts, of which only the own rows needed at a level are there."""
    matrix = np.full((server.num_vertices + num_ghosts, x.shape[1]), UNTOUCHED)
    needed = own_rows(server, level)
    matrix[: server.num_vertices][needed] = x[server.layout.order[needed]]
    return matrix


@given(clusters(weighted=True), norms, st.booleans())
def test_servers_together_gather_the_same_as_the_whole_graph(cluster, norm, self_loops):
    x = cluster.rng.standard_normal((cluster.graph.num_vertices, 3), dtype=np.float32)
    expected = spmm(adjacency(cluster.graph, norm=norm, self_loops=self_loops), x)
    for level in range(cluster.plan.num_layers):  # rows of a level are gathered into those of the next
        matrices = [filled(server, x, level, server.ghosts.num_rows) for server in cluster.servers]
        exchange(cluster, level, matrices, backward=False)
        for server, matrix in zip(cluster.servers, matrices, strict=True):
            found, needed = spmm(server.adjacency(norm, self_loops), matrix), own_rows(server, level + 1)
            own = expected[server.layout.order]
            np.testing.assert_allclose(found[needed], own[needed], rtol=1e-5, atol=1e-6)


@given(clusters(weighted=True), norms, st.booleans())
def test_servers_together_gather_the_gradient_of_the_whole_graph(cluster, norm, self_loops):
    gradient = cluster.rng.standard_normal((cluster.graph.num_vertices, 3), dtype=np.float32)
    forward = adjacency(cluster.graph, norm=norm, self_loops=self_loops)
    turned = native.csr_transpose(forward.indptr, forward.indices, forward.num_vertices, values=forward.values)
    back = Adjacency(*turned, row_scale=forward.col_scale, col_scale=forward.row_scale)
    for level in range(1, cluster.plan.num_layers + 1):
        expected = spmm(back, np.where(cluster.plan.deepest[:, None] >= level, gradient, np.float32(0)))
        matrices = [filled(server, gradient, level, server.out_ghosts.num_rows) for server in cluster.servers]
        exchange(cluster, level, matrices, backward=True)
        for server, matrix in zip(cluster.servers, matrices, strict=True):
            found = spmm(server.transpose(norm, self_loops, level), matrix)
            np.testing.assert_allclose(found, expected[server.layout.order], rtol=1e-5, atol=1e-6)


@given(clusters(weighted=True), norms, st.booleans())
def test_evaluation_gathers_every_row(cluster, norm, self_loops):
    x = cluster.rng.standard_normal((cluster.graph.num_vertices, 3), dtype=np.float32)
    expected = spmm(adjacency(cluster.graph, norm=norm, self_loops=self_loops), x)
    for server in cluster.servers:
        ghosts = server.ghosts.everything()
        matrix = np.concatenate([x[server.layout.order], np.full((ghosts.num_rows, 3), UNTOUCHED)])
        for peer in cluster.servers:
            for interval in peer.mine if peer is not server else ():
                begin, end = (server.num_vertices + row for row in ghosts.rows(0, interval))
                matrix[begin:end] = x[peer.layout.order[peer.send_list(ghosts).rows(0, interval)]]
        found = spmm(server.adjacency(norm, self_loops), matrix)
        np.testing.assert_allclose(found, expected[server.layout.order], rtol=1e-5, atol=1e-6)


def entries(edges: Adjacency, rows: np.ndarray, columns: np.ndarray) -> dict[tuple[int, int], float]:
    """{(row's vertex, column's vertex): entry}, multiplied in one order."""
    count = edges.num_edges
    row = np.repeat(np.arange(len(rows)), np.diff(edges.indptr))
    values = np.ones(count, np.float32) if edges.values is None else edges.values.copy()
    values *= np.float32(1) if edges.row_scale is None else edges.row_scale[row]
    values *= np.float32(1) if edges.col_scale is None else edges.col_scale[edges.indices]
    ends = zip(rows[row].tolist(), columns[edges.indices].tolist(), strict=True)
    return dict(zip(ends, values.tolist(), strict=True))


@given(clusters(weighted=True), norms, st.booleans())
def test_every_edge_has_exactly_the_weight_it_has_in_the_whole_graph(cluster, norm, self_loops):
    names = np.arange(cluster.graph.num_vertices)
    whole = entries(adjacency(cluster.graph, norm=norm, self_loops=self_loops), names, names)
    forward, backward = {}, {}
    for server in cluster.servers:
        own = server.layout.order
        forward |= entries(server.adjacency(norm, self_loops), own, server.ids)
        backward |= entries(server.transpose(norm, self_loops), own, server.out_ids())
    assert forward == whole
    turned = {(v, u): weight for (u, v), weight in backward.items()}
    assert turned.keys() == whole.keys()
    np.testing.assert_allclose([turned[edge] for edge in whole], list(whole.values()), rtol=1e-6)


@given(clusters(), st.booleans(), st.integers(0, 1))
def test_a_pruned_transpose_has_only_edges_into_needed_rows(cluster, self_loops, above):
    level = cluster.plan.num_layers - above
    for server in cluster.servers:
        edges, ids = server.transpose("none", self_loops, level), server.out_ids(level)
        assert (cluster.plan.deepest[ids[edges.indices]] >= level).all()
        assert len(ids) == server.num_vertices + server.out_ghosts.num_rows


@given(clusters())
def test_columns_ascend_in_every_row(cluster):
    for server in cluster.servers:
        level = cluster.plan.num_layers
        for edges in (server.adjacency("none", True), server.transpose("none", True, level)):
            assert all((np.diff(row) > 0).all() for row in np.split(edges.indices, edges.indptr[1:-1]))


@given(clusters(directed=False, needed=1.0))
def test_an_undirected_shard_shares_its_edges_with_its_transpose(cluster):
    for server in cluster.servers:
        forward, backward = server.adjacency("mean", True), server.transpose("mean", True, 1)
        assert backward.indices is forward.indices
        np.testing.assert_array_equal(server.out_ids(1), server.ids)


def test_edges_are_shared_at_a_level_that_needs_every_row_though_a_deeper_one_does_not():
    graph = dorylus.communities(300, 3, 4, average_degree=30)
    rng = np.random.default_rng(0)
    cluster = partitioned(graph, 3, 2, rng.random(300) < 0.3, rng)
    assert cluster.plan.deepest.min() == 1
    assert cluster.plan.deepest.max() == 2
    for server in cluster.servers:
        assert server.transpose("none", False, 1).indices is server.adjacency("none", False).indices
        assert server.transpose("none", False, 2).num_edges < server.adjacency("none", False).num_edges


@given(clusters(), st.booleans())
def test_reads_are_the_intervals_at_the_other_ends_of_edges(cluster, made_before):
    matrix, interval = dense_matrix(cluster.graph) != 0, cluster.plan.interval
    for server in cluster.servers:
        if made_before:
            server.adjacency("symmetric", True)
        reads = server.reads()
        assert reads.mine == server.mine
        for own, sources, readers in zip(server.mine, reads.sources, reads.readers, strict=True):
            inside = interval == own
            assert sources == {own, *interval[matrix[inside].any(axis=0)].tolist()}
            assert readers == {own, *interval[matrix[:, inside].any(axis=1)].tolist()}


@given(clusters())
def test_edges_are_counted_between_intervals(cluster):
    source, destination = (cluster.plan.interval[ends] for ends in cluster.graph.edge_list())
    for server in cluster.servers:
        for own, (others, counts) in zip(server.mine, server.edges_between(), strict=True):
            assert dict(zip(others, counts, strict=True)) == tally(source[destination == own])
        for own, (others, counts) in zip(server.mine, server.out_edges_between(), strict=True):
            assert dict(zip(others, counts, strict=True)) == tally(destination[source == own])


def assert_counted_at(cluster, servers, level):
    """Both counts are of the edges that end in a row needed at a level, and of no others."""
    ends = np.stack(cluster.graph.edge_list())
    ends = ends[:, cluster.plan.deepest[ends[1]] >= level]
    source, destination = cluster.plan.interval[ends]
    for server in servers:
        between = server.edges_between(level), server.out_edges_between(level)
        assert [len(each) for each in between] == [len(server.mine)] * 2
        for own, (others, counts) in zip(server.mine, between[0], strict=True):
            assert dict(zip(others, counts, strict=True)) == tally(source[destination == own])
        for own, (others, counts) in zip(server.mine, between[1], strict=True):
            assert dict(zip(others, counts, strict=True)) == tally(destination[source == own])


@pytest.mark.parametrize("directed", [False, True])
@given(st.data())
def test_edges_into_rows_needed_at_a_level_are_counted_between_intervals(directed, data):
    cluster = data.draw(clusters(directed=directed))
    for level in range(-1, cluster.plan.num_layers + 1):
        assert_counted_at(cluster, cluster.servers, level)


@pytest.mark.parametrize("directed", [False, True])
def test_saved_shards_count_the_edges_that_the_graph_does(tmp_path, directed):
    rng = np.random.default_rng(0)
    ends = np.unique(np.sort(rng.integers(0, 60, (2, 70)), axis=0), axis=1)
    graph = dorylus.Graph.from_edges(*ends, 60, undirected=not directed)
    cluster = partitioned(graph, 3, 2, rng.random(60) < 0.15, rng)
    assert {*cluster.plan.deepest} == {-1, 0, 1, 2}  # pruned
    save_shards(tmp_path / "shards", graph, Partitioning(cluster.plan.parts, 3, "by hand"))
    saved = open_shards(tmp_path / "shards")
    servers = [LocalShard(saved.shard(server), cluster.plan, graph) for server in range(3)]
    for level in range(-1, 3):
        assert_counted_at(cluster, cluster.servers, level)
        assert_counted_at(cluster, servers, level)


def test_counts_are_made_once_a_level():
    graph = dorylus.ring(num_vertices=9)
    server = partitioned(graph, 2, 1, np.arange(9) < 3, np.random.default_rng(0)).servers[0]
    assert server.edges_between(1) is server.edges_between(1)
    assert server.edges_between(1) is not server.edges_between()
    assert server.out_edges_between(1) is server.out_edges_between(1)
    assert server.reads().sources  # the whole graph's, whatever was counted before
    in_edges, at_level = (sum(int(counts.sum()) for _, counts in server.edges_between(level)) for level in (-1, 1))
    assert at_level < in_edges == 2 * server.num_vertices


def tally(values: np.ndarray) -> dict[int, int]:
    return dict(zip(*np.unique(values, return_counts=True), strict=True))


def in_given_order(graph: dorylus.Graph, intervals: int = 2) -> LocalShard:
    """One server whose vertices stay where they are."""
    size = graph.num_vertices
    order, parts = np.arange(size, dtype=np.int32), np.zeros(size, np.int32)
    plan = make_partition_plan(graph.in_degrees(), order, parts, 1, np.full(size, 1, np.int8), 1, [intervals])
    return LocalShard(whole_shard(graph), plan, graph)


def test_one_server_in_the_given_order_copies_nothing():
    graph = dorylus.ring(num_vertices=8)
    server = in_given_order(graph)
    assert server.adjacency("symmetric", False).indices is graph.indices
    assert server.transpose("symmetric", False).indices is graph.indices
    assert server.dense_features() is graph.features
    assert server.dense_features(ghosts=True) is graph.features
    assert server.ids is server.layout.order
    assert (server.ghosts.num_rows, server.out_ghosts.num_rows) == (0, 0)


def test_an_adjacency_is_made_once():
    server = in_given_order(dorylus.ring(num_vertices=8))
    assert server.adjacency("mean", True) is server.adjacency("mean", True)
    assert server.transpose("mean", True) is server.transpose("mean", True)
    assert server.transpose("mean", True, 1) is server.transpose("mean", True)  # every row is needed: nothing to prune


def test_normalisations_share_their_edges():
    graph = dorylus.ring(num_vertices=9)
    server = partitioned(graph, 2, 1, np.ones(9, bool), np.random.default_rng(0)).servers[0]
    assert server.adjacency("mean", True).indices is server.adjacency("symmetric", True).indices


@given(clusters())
def test_features_are_those_of_own_rows_and_ghosts(cluster):
    features = cluster.graph.features
    for server in cluster.servers:
        np.testing.assert_array_equal(server.dense_features(), features[server.layout.order])
        with_ghosts = server.dense_features(ghosts=True)
        np.testing.assert_array_equal(with_ghosts, features[server.ids])
        assert np.shares_memory(server.dense_features(), with_ghosts)  # own rows are not held twice


def test_sparse_features_stay_sparse_in_the_servers_order():
    rng = np.random.default_rng(0)
    x = rng.random((6, 20), dtype=np.float32) * (rng.random((6, 20)) < 0.2)
    graph = dorylus.Graph.from_edges([0, 1, 3], [1, 2, 4], 6, features=SparseFeatures.from_dense(x))
    for server in partitioned(graph, 2, 1, np.ones(6, bool), rng).servers:
        assert isinstance(server.sparse_features(), SparseFeatures)
        np.testing.assert_array_equal(server.sparse_features().to_dense(), x[server.layout.order])
        np.testing.assert_array_equal(server.dense_features(ghosts=True), x[server.ids])
    assert in_given_order(graph).sparse_features() is graph.features


def test_forgotten_features_are_loaded_again_on_the_next_access():
    graph = dorylus.ring(num_vertices=8)
    server = partitioned(graph, 2, 1, np.ones(8, bool), np.random.default_rng(0)).servers[0]
    before = server.dense_features()
    assert server.dense_features() is before
    server.drop_features()
    assert server.dense_features() is not before
    np.testing.assert_array_equal(server.dense_features(), before)


def test_a_negative_degree_is_refused_with_its_vertex():
    graph = dorylus.Graph.from_edges([0, 1, 2], [1, 2, 3], 4, undirected=False, edge_weight=[1.0, 1.0, -2.0])
    cluster = partitioned(graph, 2, 1, np.ones(4, bool), np.random.default_rng(0))
    owner = cluster.servers[cluster.plan.parts[3]]
    with pytest.raises(GraphError, match="in-edges of vertex 3 add up to -2"):
        owner.adjacency("symmetric", False)


def memory_of_four_servers() -> tuple[int, int, int]:
    """Bytes of edges that they hold, that the graph has, and by which the process grew at most."""
    graph = large_graph(32_000, 400, directed=False)
    parts = np.random.default_rng(0).integers(0, 4, graph.num_vertices).astype(np.int32)
    order, deepest = np.arange(graph.num_vertices, dtype=np.int32), np.full(graph.num_vertices, 2, np.int8)
    plan = make_partition_plan(graph.in_degrees(), order, parts, 4, deepest, 2, [8] * 4)
    degrees = Degrees.of(graph)
    with peak_memory() as peak:
        shards = [make_shard(graph, parts, server, edges=False, degrees=degrees) for server in range(4)]
        servers = [LocalShard(shard, plan, graph) for shard in shards]
        held = [(server.adjacency("symmetric", True), server.transpose("symmetric", True, 2)) for server in servers]
    return sum(forward.indices.nbytes for forward, _ in held), graph.indices.nbytes, peak.grown


def test_four_servers_hold_the_edges_of_one_and_no_copy_of_the_graph():
    held, edges, grown = in_a_new_process(memory_of_four_servers)
    assert held == edges
    assert held < grown < 1.3 * edges
