import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import graphs

from dorylus.backends import native
from dorylus.errors import ConfigError
from dorylus.graph.generators.random_graphs import communities, ring, rmat
from dorylus.graph.graph import Graph
from dorylus.partition import make_partitioning
from dorylus.partition.streaming import Clusters


def relabelled(graph: Graph, seed: int = 7) -> Graph:
    """The same graph with its vertices numbered at random."""
    source, destination = graph.edge_list()
    number = np.random.default_rng(seed).permutation(graph.num_vertices)
    return Graph.from_edges(number[source], number[destination], graph.num_vertices)


def loads(graph: Graph, parts: np.ndarray, servers: int) -> tuple[np.ndarray, np.ndarray]:
    return np.bincount(parts, minlength=servers), np.bincount(parts, graph.in_degrees(), minlength=servers)


GRAPHS = {
    "communities": lambda: relabelled(communities(num_vertices=10_000, num_features=1)),
    "rmat": lambda: rmat(num_vertices=10_000, num_edges=160_000, num_features=1),
    "directed rmat": lambda: rmat(num_vertices=10_000, num_edges=160_000, num_features=1, directed=True),
    "ring": lambda: relabelled(ring(num_vertices=10_000)),
}


@pytest.mark.parametrize("servers", [2, 4, 8, 13])
@pytest.mark.parametrize("passes", [1, 4])
@pytest.mark.parametrize("name", GRAPHS)
def test_vertices_and_edges_are_both_within_five_percent(name, passes, servers):
    graph = GRAPHS[name]()
    quality = make_partitioning(graph, servers, "stream", passes=passes).quality(graph)
    assert quality.vertex_balance <= 1.05
    assert quality.edge_balance <= 1.05


@pytest.mark.parametrize("servers", [4, 8])
@pytest.mark.parametrize("num_classes", [8, 40])
def test_communities_are_cut_nearly_as_well_as_by_metis(num_classes, servers):
    graph = relabelled(communities(num_vertices=20_000, num_classes=num_classes, num_features=1))
    edge_cut = {
        name: make_partitioning(graph, servers, name).quality(graph).edge_cut for name in ("stream", "metis", "hash")
    }
    assert edge_cut["stream"] <= 1.2 * edge_cut["metis"]
    assert edge_cut["stream"] <= 0.5 * edge_cut["hash"]


def test_one_pass_cuts_less_than_half_of_the_edges_that_a_random_partition_cuts():
    graph = relabelled(communities(num_vertices=20_000, num_features=1))
    quality = make_partitioning(graph, 4, "stream", passes=1).quality(graph)
    assert quality.edge_cut < 0.375


def test_one_pass_looks_at_every_vertex_once(monkeypatch):
    place, calls = native.partition_place, []
    monkeypatch.setattr(native, "partition_place", lambda *a, **options: calls.append(a) or place(*a, **options))
    monkeypatch.setattr(native, "partition_merge", None)
    make_partitioning(GRAPHS["rmat"](), 4, "stream", passes=1)
    assert len(calls) == 1


@given(graphs(max_vertices=40), st.integers(2, 8), st.sampled_from([1, 2, 4]))
def test_no_part_is_fuller_than_with_dealing_by_degree(graph, servers, passes):
    servers = min(servers, graph.num_vertices)
    parts = make_partitioning(graph, servers, "stream", passes=passes).parts
    order = np.argsort(-graph.in_degrees(), kind="stable").astype(np.int32)
    vertex_limit = max(-(-graph.num_vertices // servers), int(1.05 * graph.num_vertices / servers))
    dealt = native.partition_deal(graph.indptr, order, servers, vertex_limit=vertex_limit)
    edge_limit = max(1.05 * graph.num_edges / servers, loads(graph, dealt, servers)[1].max())
    vertices, edges = loads(graph, parts, servers)
    assert vertices.max() <= vertex_limit
    assert edges.max() <= edge_limit


def test_a_vertex_with_more_edges_than_a_share_has_a_part_with_hardly_any_other():
    """A hub with half of all in-edges: with four servers no part can be within five percent."""
    rng = np.random.default_rng(0)
    others = rng.integers(1, 2_000, (2, 1_999))
    source = np.concatenate([np.arange(1, 2_000), others[0]])
    destination = np.concatenate([np.zeros(1_999, np.int64), others[1]])
    graph = Graph.from_edges(source, destination, 2_000, undirected=False)
    vertices, edges = loads(graph, make_partitioning(graph, 4, "stream").parts, 4)
    assert vertices.max() <= 525
    assert edges.max() <= 1.05 * graph.in_degrees().max()


def test_when_no_price_makes_parts_even_they_are_dealt(monkeypatch):
    def all_to_the_first(_indptr, _indices, _starts, _members, parts, _num_parts, **_how):
        parts[:] = 0
        return len(parts)

    monkeypatch.setattr(native, "partition_place", all_to_the_first)
    graph = rmat(num_vertices=1_000, num_edges=10_000, num_features=1)
    made = make_partitioning(graph, 4, "stream", passes=1)
    assert made.quality(graph).edge_balance <= 1.05


def test_progress_is_reported():
    reports = []
    make_partitioning(communities(num_vertices=2_000, num_features=1), 2, "stream", tell=reports.append)
    assert reports[0].stage == "merging vertices into clusters"
    assert reports[-1].stage == "placing vertices"
    assert reports[-1].done == reports[-1].total
    for stage in {each.stage for each in reports}:
        done = [each.done for each in reports if each.stage == stage]
        assert done == sorted(done)


def test_no_pass_at_all_is_refused():
    with pytest.raises(ConfigError, match="passes=0: the stream makes at least one pass"):
        make_partitioning(ring(), 2, "stream", passes=0)


def test_clusters_with_the_most_edges_come_first():
    labels, degrees = np.array([4, 1, 4, 1, 0], np.int32), np.array([1, 1, 2, 1, 9], np.int64)
    clusters = Clusters.of(labels, degrees)
    assert clusters.num_clusters == 3
    assert clusters.starts.tolist() == [0, 1, 3, 5]
    assert clusters.members.tolist() == [4, 0, 2, 1, 3]
