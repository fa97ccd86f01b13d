"""Validation works block by block: its result must not depend on where blocks end."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dorylus.graph.validate as validate
from dorylus.errors import GraphError


@pytest.fixture(autouse=True)
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "STEP", 3)


def csr_of(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    indptr = np.cumsum([0, *map(len, rows)])
    return indptr, np.array([column for row in rows for column in row], np.int32)


rows_of_numbers = st.lists(st.lists(st.integers(0, 5), max_size=5), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows_of_numbers, st.booleans())
def test_the_first_descent_is_the_one_a_loop_finds(rows: list[list[int]], or_repeat: bool) -> None:
    indptr, indices = csr_of(rows)
    slow = [
        int(indptr[r]) + i
        for r, row in enumerate(rows)
        for i in range(1, len(row))
        if row[i] < row[i - 1] or (or_repeat and row[i] == row[i - 1])
    ]
    assert validate.first_descent(indptr, indices, or_repeat=or_repeat) == (slow[0] if slow else None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows_of_numbers)
def test_row_at_finds_the_row_of_every_entry(rows: list[list[int]]) -> None:
    indptr, _ = csr_of(rows)
    owners = [r for r, row in enumerate(rows) for _ in row]
    assert [validate.row_at(indptr, position) for position in range(len(owners))] == owners


@pytest.mark.parametrize("bad", range(8))
def test_the_first_hit_is_found_in_any_block(bad: int) -> None:
    hits = np.arange(8) >= bad
    assert validate.first_where(8, lambda b, e: hits[b:e]) == bad


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert validate.first_where(8, lambda b, e: np.zeros(e - b, bool)) is None


@pytest.mark.parametrize("row", range(5))
def test_a_bad_feature_is_named_in_any_block(row: int) -> None:
    features = np.zeros((5, 2), np.float32)
    features[row:, 1] = np.nan
    with pytest.raises(GraphError, match=rf"features\[{row}, 1\]"):
        validate.check_features(features, 5)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([[1], []], "edge 1 -> 0 has no edge 0 -> 1"),
        ([[], [0]], "edge 0 -> 1 has no edge 1 -> 0"),
        ([[1, 1], [0]], "not repeated equally often"),
        ([[0, 1], [0, 2], [0]], "edge 2 -> 1 has no edge 1 -> 2|edge 0 -> 2 has no edge 2 -> 0"),
    ],
)
def test_a_one_way_edge_is_named(rows: list[list[int]], sentence: str) -> None:
    indptr, indices = csr_of(rows)
    with pytest.raises(GraphError, match=sentence):
        validate.check_symmetric(indptr, indices, None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=6).map(sorted), min_size=n, max_size=n)
    )
)
def test_a_graph_is_refused_exactly_when_some_edge_is_one_way(rows: list[list[int]]) -> None:
    indptr, indices = csr_of(rows)
    edges = sorted((u, v) for v, row in enumerate(rows) for u in row)
    if edges == sorted((v, u) for u, v in edges):
        validate.check_symmetric(indptr, indices, None)
    else:
        with pytest.raises(GraphError, match="called undirected"):
            validate.check_symmetric(indptr, indices, None)


def test_a_class_beyond_what_any_graph_has_is_named() -> None:
    labels = np.array([0, 1, -1, 2**31 - 1, 2**40])
    with pytest.raises(GraphError, match=r"label of vertex 4 is 1099511627776: .* Renumber the labels"):
        validate.check_labels(labels, 5, 2**40 + 1)
    validate.check_labels(labels[:4], 4, 2**31)
