import sys

import numpy as np
import pytest

from dorylus.errors import ConfigError, DataError
from dorylus.graph.generators.random_graphs import communities, ring
from dorylus.graph.graph import Graph
from dorylus.partition import make_partitioning, metis


def test_communities_are_found_and_edges_even():
    graph = communities(num_vertices=4_000, num_classes=4, num_features=1)
    quality = make_partitioning(graph, 4, "metis").quality(graph)
    assert quality.edge_cut < 0.2
    assert quality.edge_balance < 1.05


def test_directed_edges_link_in_both_directions():
    """Two directed cycles with one edge between them: the cut is that edge, in either direction."""
    cycle = np.arange(10)
    source = np.concatenate([cycle, cycle + 10, [3]])
    destination = np.concatenate([np.roll(cycle, -1), np.roll(cycle, -1) + 10, [14]])
    graph = Graph.from_edges(source, destination, 20, undirected=False)
    assert make_partitioning(graph, 2, "metis").quality(graph).edge_cut == 1 / 21


def test_self_loops_are_not_passed_to_metis():
    graph = Graph.from_edges([0, 1, 1, 2], [0, 1, 2, 3], 4)
    indptr, indices = metis._links(graph)
    assert indptr.tolist() == [0, 0, 1, 3, 4]
    assert indices.tolist() == [2, 1, 3, 2]


def test_links_of_an_undirected_graph_are_its_own_arrays():
    graph = ring(num_vertices=10)
    assert metis._links(graph)[1] is graph.indices


def test_without_pymetis_the_cure_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(DataError, match=r'needs the package pymetis.*pip install "dorylus\[metis\]"'):
        make_partitioning(ring(), 2, "metis")


def test_a_graph_too_large_for_the_counters_of_metis_is_refused(monkeypatch):
    graph = ring(num_vertices=1_000, directed=True)
    pymetis = pytest.importorskip("pymetis")
    monkeypatch.setattr(pymetis, "zero_copy_dtype", lambda: np.dtype(np.int8))
    with pytest.raises(ConfigError, match=r"up to 127 here, but ring has 2,000 links.*'stream'"):
        make_partitioning(graph, 2, "metis")


def test_a_failure_of_metis_is_reported_with_the_cure(monkeypatch):
    def fail(*_arguments, **_options):
        raise RuntimeError("METIS_ERROR_MEMORY")

    monkeypatch.setattr(pytest.importorskip("pymetis"), "part_graph", fail)
    with pytest.raises(ConfigError, match=r"METIS_ERROR_MEMORY. Use the method 'stream'"):
        make_partitioning(ring(), 2, "metis")
