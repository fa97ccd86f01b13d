"""The kernels that cut a graph: equal to the reference bit for bit, with the properties they guarantee."""

from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from kernel_cases import Array, Case, cases, few, large_case

from dorylus.backends import native, reference


def clusters(case: Case) -> tuple[Array, Array]:
    """The vertices in random order, cut into random clusters."""
    inner = np.flatnonzero(case.rng.random(case.num_rows - 1) < 0.6) + 1
    starts = np.concatenate([[0], inner, [case.num_rows]]).astype(np.int64)
    return starts, case.rng.permutation(case.num_rows).astype(np.int32)


def one_label_a_cluster(starts: Array, members: Array, numbers: Array) -> Array:
    labels = np.empty(len(members), np.int32)
    for number, first, last in zip(numbers, starts[:-1], starts[1:], strict=True):
        labels[members[first:last]] = number
    return labels


def same_in_place(name: str, inputs: list[Any], *written: Array, **options: Any) -> None:
    mine, theirs = [each.copy() for each in written], [each.copy() for each in written]
    moved = getattr(native, name)(*inputs, *mine, **options)
    assert moved == getattr(reference, name)(*inputs, *theirs, **options)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def same_in_parts(name: str, case: Case, starts: Array, members: Array, *written: Array, **options: Any) -> None:
    """A pass made in three calls, over rows in the order of the members, is the pass made in one."""
    at_once, by_parts = [each.copy() for each in written], [each.copy() for each in written]
    moved = getattr(native, name)(case.indptr, case.indices, starts, members, *at_once, **options)
    merging, cuts = name == "partition_merge", sorted(case.rng.integers(0, len(starts), 2).tolist())
    parts = [(a, b) for a, b in pairwise([0, *cuts, len(starts) - 1]) if a < b]
    for first, last in reversed(parts) if merging else parts:
        some = members[starts[first] : starts[last]]
        rows = [case.indices[case.indptr[v] : case.indptr[v + 1]] for v in some]
        indptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        near = starts[first : last + 1] - starts[first]
        here = options | ({"first_cluster": first} if merging else {})
        indices = np.concatenate([*rows, np.zeros(0, np.int32)]).astype(np.int32)
        moved -= getattr(native, name)(indptr, indices, near, some, *by_parts, **here, in_order=True)
    assert moved == 0
    for a, b in zip(at_once, by_parts, strict=True):
        np.testing.assert_array_equal(a, b)


@few
@given(cases(square=True), st.integers(0, 8), st.integers(0, 40), st.integers(0, 2**63 - 1))
def test_merging_agrees_with_the_reference(case: Case, vertex_room: int, edge_room: int, seed: int) -> None:
    starts, members = clusters(case)
    labels = one_label_a_cluster(starts, members, case.rng.integers(0, case.num_rows, len(starts) - 1))
    rooms = {"vertex_room": vertex_room, "edge_room": edge_room, "seed": seed}
    held = native.partition_held(case.indptr, labels, case.num_rows)
    same_in_place("partition_merge", [case.indptr, case.indices, starts, members], labels, held, **rooms)
    same_in_parts("partition_merge", case, starts, members, labels, held, **rooms)


@few
@given(cases(square=True), st.integers(1, 5), st.integers(0, 6), st.booleans())
def test_placing_agrees_with_the_reference(case: Case, num_parts: int, steepness: int, strict: bool) -> None:
    starts, members = clusters(case)
    parts = one_label_a_cluster(starts, members, case.rng.integers(-1, num_parts, len(starts) - 1))
    how = {
        "num_edges": case.num_edges,
        "vertex_limit": -(-case.num_rows // num_parts),
        "edge_limit": case.num_edges // num_parts,
        "steepness": steepness,
        "strict": strict,
    }
    held = native.partition_held(case.indptr, parts, num_parts)
    same_in_place("partition_place", [case.indptr, case.indices, starts, members], parts, held, **how)
    same_in_parts("partition_place", case, starts, members, parts, held, **how)


@few
@given(cases(square=True), st.integers(1, 5))
def test_the_weight_of_every_label_agrees_with_the_reference(case: Case, num_labels: int) -> None:
    labels = case.rng.integers(-1, num_labels, case.num_rows).astype(np.int32)
    mine = native.partition_held(case.indptr, labels, num_labels)
    np.testing.assert_array_equal(mine, reference.partition_held(case.indptr, labels, num_labels))


@few
@given(cases(square=True), st.integers(1, 5), st.integers(0, 3))
def test_dealing_agrees_with_the_reference(case: Case, num_parts: int, more: int) -> None:
    order = case.rng.permutation(case.num_rows).astype(np.int32)
    limit = -(-case.num_rows // num_parts) + more
    mine = native.partition_deal(case.indptr, order, num_parts, vertex_limit=limit)
    np.testing.assert_array_equal(mine, reference.partition_deal(case.indptr, order, num_parts, vertex_limit=limit))


@few
@given(cases(square=True), st.integers(1, 40), st.integers(0, 20), st.booleans())
def test_edges_between_parts_agree_with_the_reference(
    case: Case, num_parts: int, first_part: int, with_targets: bool
) -> None:
    parts = case.rng.integers(0, num_parts, case.num_rows).astype(np.int32)
    mine, theirs = (np.zeros((2, case.num_rows), np.int32) for _ in range(2))
    middle = int(case.rng.integers(0, case.num_rows + 1))
    cut = 0
    for first, indptr in ((0, case.indptr[: middle + 1]), (middle, case.indptr[middle:])):
        rows = indptr - indptr[0], case.indices[indptr[0] : indptr[-1]]
        bits = mine[0], mine[1] if with_targets else None
        cut += native.partition_across(*rows, parts, *bits, first_part=first_part, first_row=first)
    bits = theirs[0], theirs[1] if with_targets else None
    assert cut == reference.partition_across(case.indptr, case.indices, parts, *bits, first_part=first_part)
    np.testing.assert_array_equal(mine, theirs)


def test_rows_longer_than_the_prefetch_distance_are_read_completely() -> None:
    case = large_case()
    starts, members = clusters(case)
    parts = one_label_a_cluster(starts, members, case.rng.integers(-1, 3, len(starts) - 1))
    how = {"num_edges": case.num_edges, "vertex_limit": 100, "edge_limit": 3_000, "steepness": 1, "strict": True}
    held = native.partition_held(case.indptr, parts, 3)
    same_in_place("partition_place", [case.indptr, case.indices, starts, members], parts, held, **how)
    same_in_parts("partition_place", case, starts, members, parts, held, **how)
    labels = one_label_a_cluster(starts, members, np.arange(len(starts) - 1))
    rooms = {"vertex_room": 20, "edge_room": 600, "seed": 5}
    held = native.partition_held(case.indptr, labels, case.num_rows)
    same_in_place("partition_merge", [case.indptr, case.indices, starts, members], labels, held, **rooms)
    same_in_parts("partition_merge", case, starts, members, labels, held, **rooms)


def test_merged_clusters_stay_within_their_limit() -> None:
    case = large_case()
    vertices = np.arange(case.num_rows, dtype=np.int32)
    labels, degrees = vertices.copy(), np.diff(case.indptr)
    singles = np.arange(case.num_rows + 1, dtype=np.int64)
    room = {"vertex_room": 10, "edge_room": 400}
    held = native.partition_held(case.indptr, labels, case.num_rows)
    moved = native.partition_merge(case.indptr, case.indices, singles, vertices, labels, held, **room, seed=0)
    grown = np.bincount(labels) > 1
    assert moved > 0
    assert np.bincount(labels).max() <= 10
    assert np.bincount(labels, weights=degrees)[grown].max() <= 400


def test_the_seed_decides_between_labels_seen_equally_often() -> None:
    """A star whose middle sees every leaf once."""
    indptr = np.array([0, 20, *[20] * 20], np.int64)
    indices = np.arange(1, 21, dtype=np.int32)
    members, starts = np.arange(21, dtype=np.int32), np.arange(22, dtype=np.int64)
    chosen = set()
    for seed in range(40):
        labels = members.copy()
        held = native.partition_held(indptr, labels, 21)
        native.partition_merge(indptr, indices, starts, members, labels, held, vertex_room=5, edge_room=30, seed=seed)
        chosen.add(int(labels[0]))
    assert len(chosen) > 5


MERGE = {
    "indptr": np.array([0, 1, 2], np.int64),
    "indices": np.array([1, 0], np.int32),
    "starts": np.array([0, 1, 2], np.int64),
    "members": np.array([0, 1], np.int32),
    "labels": np.array([0, 1], np.int32),
    "held": np.array([[1, 1], [1, 1]], np.int64),
    "vertex_room": 2,
    "edge_room": 2,
    "seed": 0,
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"labels": np.array([0, 2], np.int32)}, r"labels\[1\] is 2, outside 0..1"),
        ({"labels": np.array([-1, 0], np.int32)}, r"labels\[0\] is -1, outside 0..1"),
        ({"members": np.array([0, 7], np.int32)}, r"members\[1\] is 7, outside 0..1"),
        ({"members": np.array([0], np.int32)}, "starts must rise from 0 to the 1 members"),
        ({"members": np.array([0], np.int32), "in_order": True}, "members must have 2 elements, not 1"),
        ({"indptr": np.array([0, 1], np.int64), "indices": np.zeros(1, np.int32)}, "1 rows for 2 vertices"),
        ({"held": np.zeros((1, 2), np.int64)}, "held must have 4 elements, not 2"),
        ({"starts": np.array([0, 2, 2], np.int64)}, "a cluster holds at least one vertex"),
        ({"starts": np.array([0, 1], np.int64)}, "starts must rise from 0 to the 2 members"),
        ({"starts": np.zeros(0, np.int64)}, "starts must have one more element"),
        ({"indptr": np.zeros(0, np.int64)}, "indptr must have one more element"),
    ],
)
def test_indices_out_of_bounds_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        native.partition_merge(**(MERGE | wrong))


def test_wrong_parts_and_limits_are_refused() -> None:
    graph = (MERGE["indptr"], MERGE["indices"])
    bits = np.zeros(2, np.int32)
    with pytest.raises(ValueError, match=r"labels\[1\] is 3, outside -1..2"):
        native.partition_held(graph[0], np.array([0, 3], np.int32), 3)
    with pytest.raises(ValueError, match="vertex_limit 0 leaves some of the 2 vertices without a part"):
        native.partition_deal(graph[0], np.array([0, 1], np.int32), 2, vertex_limit=0)
    with pytest.raises(ValueError, match="rows 1 to 2 of 2"):
        native.partition_across(*graph, np.array([0, 0], np.int32), bits, first_row=1)
    with pytest.raises(ValueError, match="readers must have 2 elements, not 1"):
        native.partition_across(*graph, np.array([0, 0], np.int32), bits[:1])
    with pytest.raises(TypeError, match="parts must hold int32"):
        native.partition_across(*graph, np.array([0, 0], np.int64), bits)


PLACE = {"num_edges": 2, "vertex_limit": 1, "edge_limit": 1, "strict": True}


@pytest.mark.parametrize(
    ("parts", "held", "steepness", "message"),
    [
        ([0, 0], np.zeros((2, 2)), 7, "steepness must lie in 0..6"),
        ([0, 2], np.zeros((2, 2)), 1, r"parts\[1\] is 2, outside -1..1"),
        ([0, 0], np.zeros((0, 2)), 1, "num_parts must lie in"),
    ],
)
def test_invalid_places_are_refused(parts: list[int], held: Array, steepness: int, message: str) -> None:
    inputs = [MERGE[name] for name in ("indptr", "indices", "starts", "members")]
    written = np.array(parts, np.int32), held.astype(np.int64)
    with pytest.raises(ValueError, match=message):
        native.partition_place(*inputs, *written, **PLACE, steepness=steepness)
