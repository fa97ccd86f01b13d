"""Distinct random edges: the requested number or an error, never fewer."""

import numpy as np
import pytest

from dorylus.errors import ConfigError
from dorylus.graph.generators.sampling import distinct_edges


def uniform(n: int, rng: np.random.Generator):  # type: ignore[no-untyped-def]
    return lambda count: (rng.integers(0, n, count, dtype=np.int32), rng.integers(0, n, count, dtype=np.int32))


@pytest.mark.parametrize("num_edges", [0, 1, 30, 45])
def test_the_requested_number_of_edges_is_generated_even_if_it_is_all_of_them(num_edges: int) -> None:
    rng = np.random.default_rng(0)
    edges = distinct_edges(rng, uniform(10, rng), num_edges, undirected=True)
    assert len(set(edges.tolist())) == num_edges
    assert (edges >> 32 < (edges & 0xFFFFFFFF)).all()


def test_more_edges_than_exist_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="found only 45 of 46"):
        distinct_edges(rng, uniform(10, rng), 46, undirected=True)
