import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import dense_matrix, graphs

from dorylus.errors import ConfigError
from dorylus.partition import check_intervals, choose_intervals, make_layout, needed_levels, settle_levels
from dorylus.partition.layout import VERTEX_WORK, plain_layout, rows_per_unit


@st.composite
def layouts(draw):
    """(degrees, order, deepest level, number of layers, layout)."""
    num_layers = draw(st.integers(1, 3))
    num_vertices = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    degrees = (rng.random(num_vertices) ** 4 * 200).astype(np.int64)
    order = rng.permutation(num_vertices).astype(np.int32)
    deepest = rng.integers(-1, num_layers + 1, num_vertices).astype(np.int8)
    intervals = draw(st.integers(1, num_vertices))
    return degrees, order, deepest, num_layers, make_layout(degrees, order, deepest, num_layers, intervals)


@given(layouts())
def test_the_order_is_a_permutation_and_intervals_cover_it(case):
    degrees, *_, layout = case
    assert layout.order.dtype == np.int32
    assert sorted(layout.order) == list(range(len(degrees)))
    assert (layout.bounds[0], layout.bounds[-1]) == (0, len(degrees))
    assert (np.diff(layout.bounds) >= 0).all()


@given(layouts())
def test_the_rows_of_a_level_are_the_first_of_each_interval(case):
    _, _, deepest, num_layers, layout = case
    for level in range(num_layers + 1):
        for interval in range(layout.num_intervals):
            begin, end = layout.rows(level, interval)
            needed = deepest[layout.order[layout.bounds[interval] : layout.bounds[interval + 1]]] >= level
            assert begin == layout.bounds[interval]
            assert needed.tolist() == [True] * (end - begin) + [False] * (len(needed) - (end - begin))


@given(layouts())
def test_levels_are_nested_and_counted(case):
    _, _, deepest, num_layers, layout = case
    for level in range(num_layers + 1):
        assert layout.num_rows(level) == (deepest >= level).sum()
        if level:
            assert (layout.level_ends[level] <= layout.level_ends[level - 1]).all()


@given(layouts())
def test_intervals_share_the_work_of_every_level_equally_to_within_one_vertex(case):
    degrees, _, deepest, _, layout = case
    work = degrees + VERTEX_WORK
    for value in np.unique(deepest):
        members = deepest == value
        fair, largest = work[members].sum() / layout.num_intervals, work[members].max()
        for begin, end in zip(layout.bounds[:-1], layout.bounds[1:], strict=True):
            own = layout.order[begin:end]
            assert abs(work[own][members[own]].sum() - fair) <= largest


@given(layouts())
def test_vertices_of_a_level_keep_the_order_they_were_given_in(case):
    _, order, deepest, num_layers, layout = case
    for value in range(-1, num_layers + 1):
        given_order = [vertex for vertex in order if deepest[vertex] == value]
        assert [vertex for vertex in layout.order if deepest[vertex] == value] == given_order


@given(layouts())
def test_everything_needs_every_row_at_every_level(case):
    degrees, _, _, num_layers, layout = case
    whole = layout.everything()
    assert whole.num_intervals == layout.num_intervals
    assert all(whole.num_rows(level) == len(degrees) for level in range(num_layers + 1))
    np.testing.assert_array_equal(whole.order, layout.order)


@given(graphs(), st.integers(1, 4), st.integers(0, 2**32))
def test_needed_levels_are_those_a_search_from_the_vertices_of_the_loss_finds(graph, num_layers, seed):
    loss_mask = np.random.default_rng(seed).random(graph.num_vertices) < 0.2
    matrix = dense_matrix(graph) != 0
    expected = np.full(graph.num_vertices, -1)
    reached = loss_mask.copy()
    for level in range(num_layers, -1, -1):
        expected[reached & (expected < 0)] = level
        reached = reached | matrix[reached].any(axis=0)
    np.testing.assert_array_equal(needed_levels(graph.indptr, graph.indices, loss_mask, num_layers), expected)


def test_no_vertex_is_needed_when_the_loss_reads_none():
    levels = needed_levels(np.array([0, 1, 2]), np.array([1, 0], np.int32), np.zeros(2, np.bool_), 2)
    assert levels.tolist() == [-1, -1]


def test_the_mask_of_the_loss_is_not_changed():
    loss_mask = np.array([True, False])
    needed_levels(np.array([0, 1, 2]), np.array([1, 0], np.int32), loss_mask, 2)
    assert loss_mask.tolist() == [True, False]


def test_more_intervals_than_vertices_are_refused_with_the_cure():
    check_intervals(300, 300)
    with pytest.raises(ConfigError, match=r"intervals=512, but the graph has 300 vertices\. .* use at most 300\."):
        check_intervals(512, 300)


@pytest.mark.parametrize(
    ("rows", "edges", "threads", "intervals"),
    [
        (2_708, 10_000, 2, 1),  # small work is not cut
        (100_000, 1_000, 2, 12),  # by rows
        (10_000, 20_000_000, 2, 20),  # by edges
        (10_000, 1_000, 16, 1),  # nor is this: a task costs more than it would save
        (20_000, 1_000, 16, 32),  # enough for the threads
        (100_000_000, 10, 2, 256),  # not more than pays
    ],
)
def test_the_number_of_intervals_follows_the_work(rows, edges, threads, intervals):
    assert choose_intervals(rows, edges, threads) == intervals


def test_a_level_that_leaves_out_almost_no_edge_takes_every_vertex():
    degrees = np.array([50, 46, 3, 1], np.int64)
    deepest = np.array([2, 1, -1, 0], np.int8)  # edges into level 2: 50 %, level 1: 96 %
    assert settle_levels(deepest, degrees, 2).tolist() == [2, 1, 1, 1]


def test_levels_that_leave_out_many_edges_stay_as_they_are():
    degrees = np.array([50, 30, 10, 10], np.int64)
    deepest = np.array([2, 1, -1, 0], np.int8)
    assert settle_levels(deepest, degrees, 2).tolist() == deepest.tolist()


@st.composite
def plain_layouts(draw):
    """(degrees, number of layers, plain layout): degrees of hubs, or all work in a few vertices."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.integers(1, 60))
    degrees = (rng.random(size) ** draw(st.sampled_from([1, 4, 40])) * 200).astype(np.int64)
    num_layers = draw(st.integers(1, 3))
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    return degrees, num_layers, plain_layout(indptr, num_layers, draw(st.integers(1, size)))


@given(plain_layouts())
def test_a_plain_layout_keeps_the_order_and_its_intervals_cover_it(case):
    degrees, _, layout = case
    assert layout.order.tolist() == list(range(len(degrees)))
    assert layout.order.dtype == np.int32
    assert (layout.bounds[0], layout.bounds[-1]) == (0, len(degrees))
    assert (np.diff(layout.bounds) >= 1).all()


@given(plain_layouts())
def test_a_plain_layout_needs_every_row_at_every_level(case):
    degrees, num_layers, layout = case
    assert layout.level_ends.shape == (num_layers + 1, layout.num_intervals)
    assert all(layout.num_rows(level) == len(degrees) for level in range(num_layers + 1))
    assert layout.rows(0, layout.num_intervals - 1) == (layout.bounds[-2], len(degrees))


@given(plain_layouts())
def test_a_plain_layout_shares_the_work_equally_to_within_one_vertex(case):
    degrees, _, layout = case
    work = degrees + VERTEX_WORK
    fair, largest = work.sum() / layout.num_intervals, work.max()
    before = np.concatenate([[0], np.cumsum(work)])[layout.bounds]
    shares, alone = np.diff(before), np.diff(layout.bounds) == 1
    assert (shares[~alone] <= fair + largest).all()  # a share of one vertex cannot be smaller


def test_equal_vertices_are_cut_into_equal_intervals():
    layout = plain_layout(np.arange(0, 505, 5, dtype=np.int64), 2, 4)
    assert layout.bounds.tolist() == [0, 25, 50, 75, 100]


@given(st.integers(1, 400), st.integers(0, 2**32), st.sampled_from([1, 4, 40]))
def test_large_intervals_have_about_equal_work_wherever_hubs_are(intervals, seed, skew):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(intervals, 400_000))
    degrees = np.sort((rng.random(size) ** skew * 1000).astype(np.int64))[::-1]  # hubs first
    bounds = plain_layout(np.concatenate([[0], np.cumsum(degrees)]), 1, intervals).bounds
    assert (bounds[0], bounds[-1], bounds.size) == (0, size, intervals + 1)
    assert (np.diff(bounds) >= 1).all()
    work = np.add.reduceat(degrees + VERTEX_WORK, bounds[:-1])
    assert work.max() <= 1.34 * work.sum() / intervals + 2 * (degrees.max() + VERTEX_WORK)


def test_large_intervals_of_like_vertices_begin_at_multiples_of_a_power_of_two():
    indptr = np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(0, 20, 100_000))])
    assert rows_per_unit(100_000, 40) == 512
    assert (plain_layout(indptr, 1, 40).bounds[:-1] % 256 == 0).all()


@pytest.mark.parametrize(
    ("vertices", "intervals", "rows"),
    [(1000, 4, 1), (1023, 4, 1), (1024, 4, 64), (1_200_000, 1024, 256), (65_000_000, 1024, 1024), (5, 9, 1)],
)
def test_a_unit_is_a_quarter_of_an_interval_at_most_or_nothing(vertices, intervals, rows):
    assert rows_per_unit(vertices, intervals) == rows


def test_one_hub_does_not_leave_intervals_empty():
    degrees = [0, 0, 0, 100_000, 0]
    layout = plain_layout(np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64), 1, 5)
    assert layout.bounds.tolist() == [0, 1, 2, 3, 4, 5]


def test_two_marks_within_one_hub_leave_no_interval_empty():
    degrees = [32, 1, 0, 0, 87, 138, 27, 56]
    layout = plain_layout(np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64), 1, 4)
    assert (np.diff(layout.bounds) >= 1).all(), layout.bounds
