"""Splits by vertex numbers: each vertex occurs once, or the error names the repeated entry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.errors import GraphError
from dorylus.graph.coerce import mark_selected, mask_from_numbers


def test_a_split_by_numbers_names_a_vertex_once() -> None:
    assert mask_from_numbers([3, 0], 4).tolist() == [True, False, False, True]
    assert not mask_from_numbers([], 4).any()
    with pytest.raises(GraphError, match=r"a split names vertex 0 twice, again in entry 2: .* make it bool"):
        mask_from_numbers(np.array([1, 0, 0, 1], "u1"), 4)


@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.booleans(), min_size=10, max_size=10))
def test_the_first_repeat_is_the_one_a_loop_finds(numbers: list[int], before: list[bool]) -> None:
    seen, expected = {vertex for vertex in range(10) if before[vertex]}, None
    for place, number in enumerate(numbers):
        if number in seen and expected is None:
            expected = place
        seen.add(number)
    chosen = np.array(before)
    assert mark_selected(chosen, np.array(numbers, np.int64)) == expected
    assert set(np.flatnonzero(chosen).tolist()) == seen
