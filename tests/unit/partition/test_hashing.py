import numpy as np

from dorylus.graph.generators.random_graphs import communities, ring
from dorylus.partition import make_partitioning


def test_a_vertex_has_the_same_part_in_every_graph_and_for_every_seed():
    small = make_partitioning(ring(num_vertices=100), 4, "hash").parts
    large = make_partitioning(communities(num_vertices=1_000, num_features=1), 4, "hash", seed=9).parts
    np.testing.assert_array_equal(small, large[:100])


def test_the_hash_is_fixed():
    assert make_partitioning(ring(num_vertices=8), 4, "hash").parts.tolist() == [3, 1, 2, 1, 2, 2, 0, 3]


def test_vertices_are_even_and_edges_are_cut_as_by_chance():
    graph = communities(num_vertices=20_000, num_features=1)
    quality = make_partitioning(graph, 4, "hash").quality(graph)
    assert quality.vertex_balance < 1.03
    assert 0.74 < quality.edge_cut < 0.76


def test_numbers_beyond_one_step_continue_where_the_step_before_ended(monkeypatch):
    whole = make_partitioning(ring(num_vertices=100), 4, "hash").parts
    monkeypatch.setattr("dorylus.partition.partitioning.STEP", 7)
    np.testing.assert_array_equal(make_partitioning(ring(num_vertices=100), 4, "hash").parts, whole)
