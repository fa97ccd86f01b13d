"""rmat: exact sizes, a heavy tail, and the probabilities of the model."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dorylus.errors import ConfigError
from dorylus.graph import rmat


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("num_vertices", [64, 1000, 1025])
def test_the_graph_has_the_requested_size_and_keeps_every_rule(num_vertices: int, directed: bool) -> None:
    graph = rmat(num_vertices, 10 * num_vertices, directed=directed)
    assert (graph.num_vertices, graph.num_edges) == (num_vertices, 10 * num_vertices)
    replace(graph, trust="nothing")
    source, destination = graph.edge_list()
    assert (source != destination).all()
    assert len(np.unique(source.astype(np.int64) * num_vertices + destination)) == graph.num_edges


def test_scale_gives_a_power_of_two() -> None:
    assert rmat(scale=9, num_features=1).num_vertices == 512


def test_degrees_have_a_heavy_tail() -> None:
    degrees = rmat(4096, 40_000, num_features=1).in_degrees()
    assert degrees.max() > 15 * degrees.mean()


def test_unscrambled_edges_fall_into_the_quarters_with_their_probabilities() -> None:
    graph = rmat(2**14, 20_000, quadrants=(0.4, 0.3, 0.2), scramble=False, directed=True, num_features=1)
    source, destination = graph.edge_list()
    low, left = source < 2**13, destination < 2**13
    shares = [(low & left).mean(), (low & ~left).mean(), (~low & left).mean(), (~low & ~left).mean()]
    assert np.allclose(shares, [0.4, 0.3, 0.2, 0.1], atol=0.02)


def test_equal_quarters_give_a_graph_without_a_tail() -> None:
    degrees = rmat(4096, 80_000, quadrants=(0.25, 0.25, 0.25), num_features=1).in_degrees()
    assert degrees.max() < 3 * degrees.mean()


def test_the_same_seed_gives_the_same_graph() -> None:
    a, b, c = rmat(256, seed=1), rmat(256, seed=1), rmat(256, seed=2)
    assert np.array_equal(a.indices, b.indices)
    assert np.array_equal(np.asarray(a.features), np.asarray(b.features))
    assert not np.array_equal(a.indices, c.indices)


REFUSED: dict[str, dict[str, Any]] = {
    "two sizes": {"num_vertices": 8, "scale": 3},
    "more edges than fit": {"num_vertices": 8, "num_edges": 50},
    "half an undirected edge": {"num_vertices": 100, "num_edges": 5},
    "probabilities beyond 1": {"quadrants": (0.6, 0.3, 0.3)},
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED.keys())
def test_invalid_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"use|add up"):
        rmat(**arguments)
