"""ring: a graph whose content is known exactly."""

from dataclasses import replace

import numpy as np
import pytest

from dorylus.errors import ConfigError
from dorylus.graph import ring


def test_every_vertex_has_its_two_neighbours() -> None:
    graph = ring(5, 1)
    assert graph.indices.reshape(5, 2).tolist() == [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]
    replace(graph, trust="nothing")


def test_a_directed_ring_goes_round_once() -> None:
    assert ring(4, 1, directed=True).indices.tolist() == [3, 0, 1, 2]


def test_labels_are_arcs() -> None:
    labels = ring(8, 4).labels
    assert labels is not None
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_same_seed_gives_the_same_features() -> None:
    assert np.array_equal(np.asarray(ring(seed=3).features), np.asarray(ring(seed=3).features))


@pytest.mark.parametrize(("num_vertices", "num_classes"), [(0, 4), (2, 1), (5, 6)])
def test_invalid_rings_are_refused(num_vertices: int, num_classes: int) -> None:
    with pytest.raises(ConfigError, match="at least 3 vertices"):
        ring(num_vertices, num_classes)
