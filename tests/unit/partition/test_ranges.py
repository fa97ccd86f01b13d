import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import graphs

from dorylus.graph.generators.random_graphs import rmat
from dorylus.graph.graph import Graph
from dorylus.partition import make_partitioning


@given(graphs(), st.integers(1, 24))
def test_numbers_of_a_part_are_contiguous(graph, servers):
    parts = make_partitioning(graph, min(servers, graph.num_vertices), "range").parts
    assert set(np.diff(parts).tolist()) <= {0, 1}


def test_the_work_is_even():
    graph = rmat(num_vertices=5_000, num_edges=50_000, num_features=1, scramble=False)
    parts = make_partitioning(graph, 4, "range").parts
    work = np.bincount(parts, weights=graph.in_degrees() + 8)
    sizes = np.bincount(parts)
    assert work.max() <= 1.05 * work.mean()
    assert sizes.max() > 2 * sizes.min()  # the busiest vertices come first: equal counts would not do


def test_a_vertex_heavier_than_a_share_leaves_no_part_empty():
    star = Graph.from_edges(range(1, 50), [0] * 49, 50, undirected=False)
    sizes = np.bincount(make_partitioning(star, 5, "range").parts)
    assert len(sizes) == 5
    assert sizes.min() >= 1
