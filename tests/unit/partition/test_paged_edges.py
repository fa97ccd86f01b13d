from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import graphs

import dorylus
from dorylus.backends import native
from dorylus.graph.adjacency_matrix import Degrees
from dorylus.paging import PAGE, Pager
from dorylus.partition.layout import plain_layout
from dorylus.partition.paged_shard import PagedDegrees, interval_in_memory, paged_edges, paged_out_edges, with_loops

SIZE = 3000


@pytest.fixture(scope="module", params=[False, True], ids=["unweighted", "weighted"])
def graph(request):
    """A graph whose edges take many pages, from its store and in memory."""
    rng = np.random.default_rng(1)
    source, destination = np.unique((SIZE * rng.random((2, 20_000)) ** 2).astype(np.int64), axis=1)
    weight = rng.random(source.size, np.float32) if request.param else None
    return dorylus.Graph.from_edges(source, destination, SIZE, undirected=False, edge_weight=weight)


@pytest.fixture(scope="module")
def stored(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "graph"
    graph.save(folder)
    return dorylus.Graph.open(folder)


@pytest.fixture
def pager(tmp_path):
    pager = Pager(tmp_path, deadline_s=10)
    yield pager
    pager.close()


def whole(edges):
    """(indptr, indices, weights), read interval by interval."""
    parts = [
        (near, indices.copy(), None if weights is None else weights.copy())
        for _, _, (near, indices, weights) in edges.blocks()
    ]
    starts = np.cumsum([0, *(part[0][-1] for part in parts)])
    indptr = np.concatenate([[0], *(near[1:] + start for (near, *_), start in zip(parts, starts, strict=False))])
    weights = None if edges.csr[2] is None else np.concatenate([part[2] for part in parts])
    return indptr, np.concatenate([part[1] for part in parts]), weights


def assert_same(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_array_equal(mine, theirs)


def assert_same_scales(found, expected, size):
    """Every normalisation scales as it does with all degrees in memory."""
    all_vertices = np.arange(size, dtype=np.int32)
    for norm in ("none", "symmetric", "mean"):
        for self_loops in (False, True):
            for mine, theirs in zip(
                found.scales(norm, self_loops), expected.scales(norm, self_loops, all_vertices), strict=True
            ):
                assert (1.0 if mine is None else mine.tolist()) == (1.0 if theirs is None else theirs.tolist())


def bounds_of(graph, intervals=7):
    return plain_layout(graph.indptr, 1, intervals).bounds


def test_edges_of_a_store_are_those_of_the_graph_and_leave_memory(graph, stored, pager):
    edges = paged_edges(stored, bounds_of(graph), pager)
    assert len(edges.pages) == (1 if graph.edge_weight is None else 2)
    for _ in range(2):
        assert_same(whole(edges), (graph.indptr, graph.indices, graph.edge_weight))
    first, last = graph.indptr[edges.bounds[3]], graph.indptr[edges.bounds[4]]
    here = edges.csr[1][first : last + 1].nonzero()[0]
    assert here.size < 2 * PAGE // 4, "more is in memory than the pages that intervals share"


def test_edges_in_memory_are_taken_as_they_are(graph, pager):
    edges = paged_edges(graph, bounds_of(graph), pager)
    assert edges.pages == ()
    assert edges.csr[1] is graph.indices
    assert_same(whole(edges), (graph.indptr, graph.indices, graph.edge_weight))


@pytest.mark.parametrize("place", ["graph", "stored"])
def test_degrees_are_those_of_the_graph(place, graph, request, pager):
    found = PagedDegrees.of(paged_edges(request.getfixturevalue(place), bounds_of(graph), pager), pager)
    expected = Degrees.of(graph)
    assert_same((found.loops, found.weights), (expected.loops, expected.weights))
    assert_same_scales(found, expected, SIZE)


@pytest.mark.parametrize("place", ["graph", "stored"])
def test_self_loops_are_added_as_a_selection_would(place, graph, request, pager):
    edges = paged_edges(request.getfixturevalue(place), bounds_of(graph), pager)
    looped = with_loops(edges, Degrees.of(graph).loops, pager)
    all_vertices = np.arange(SIZE, dtype=np.int32)
    csr = (graph.indptr, graph.indices, all_vertices, all_vertices, SIZE)
    expected = native.csr_select(*csr, values=graph.edge_weight, self_loops=True)
    assert_same(whole(looped), expected)
    assert looped.pages, "written to scratch, wherever the edges were"


@pytest.mark.parametrize("place", ["graph", "stored"])
def test_out_edges_are_the_transpose(place, graph, request, pager):
    out = paged_out_edges(request.getfixturevalue(place), bounds_of(graph), pager)
    expected = native.csr_transpose(graph.indptr, graph.indices, SIZE, values=graph.edge_weight)
    assert_same(whole(out), expected)


@contextmanager
def a_pager(folder):
    pager = Pager(folder, deadline_s=10)
    try:
        yield pager
    finally:
        pager.close()


@settings(max_examples=20)
@given(graph=st.booleans().flatmap(lambda weighted: graphs(weighted=weighted)), data=st.data())
def test_small_graphs_of_any_shape(graph, data, tmp_path_factory):
    bounds = bounds_of(graph, data.draw(st.integers(1, graph.num_vertices)))
    with a_pager(tmp_path_factory.getbasetemp()) as pager:
        edges = paged_edges(graph, bounds, pager)
        degrees, expected = PagedDegrees.of(edges, pager), Degrees.of(graph)
        assert_same((degrees.loops, degrees.weights), (expected.loops, expected.weights))
        assert_same_scales(degrees, expected, graph.num_vertices)
        all_vertices = np.arange(graph.num_vertices, dtype=np.int32)
        csr = (graph.indptr, graph.indices, all_vertices, all_vertices, graph.num_vertices)
        looped = native.csr_select(*csr, values=graph.edge_weight, self_loops=True)
        assert_same(whole(with_loops(edges, degrees.loops, pager)), looped)


def test_memory_is_released_also_when_the_work_fails(graph, stored, pager):
    edges = paged_edges(stored, bounds_of(graph), pager)
    first, last = graph.indptr[edges.bounds[2]], graph.indptr[edges.bounds[3]]

    def work():
        with interval_in_memory(edges.pages, 2):
            np.testing.assert_array_equal(edges.csr[1][first:last], graph.indices[first:last])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    pager.close()
    middle = int(first + last) // 2
    assert not edges.csr[1][middle : middle + 10].any()


@pytest.mark.parametrize("place", ["graph", "stored"])
def test_passes_over_all_edges_report_their_progress(place, graph, request, tmp_path):
    reported = {}
    pager = Pager(
        tmp_path, deadline_s=10, tell=lambda progress: reported.setdefault(progress.stage, []).append(progress[1:3])
    )
    edges = paged_edges(request.getfixturevalue(place), bounds_of(graph), pager)
    with_loops(edges, PagedDegrees.of(edges, pager).loops, pager)
    pager.close()
    assert list(reported) == ["reading the edges", "copying the edges, with self loops"]
    total = graph.num_edges * (4 if graph.edge_weight is None else 8)
    for counts in reported.values():
        assert (counts[0], counts[-1], len(counts)) == ((0, total), (total, total), 8)
        assert counts == sorted(counts)
