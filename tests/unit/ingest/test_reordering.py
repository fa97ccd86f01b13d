"""An ingest that numbers vertices by falling degree: the same graph under other numbers, with its ids."""

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import dorylus.ingest.budget as budget
import dorylus.ingest.pipeline as pipeline
import dorylus.ingest.reordering as reordering
from dorylus.errors import ConfigError, GraphError
from dorylus.graph import Graph, vertex_order
from dorylus.graph.store import open_ids, open_out_edges
from dorylus.ingest.batches import Tokens
from dorylus.ingest.reordering import Reordered, degree_order
from dorylus.ingest.scratch import EdgeScratch
from dorylus.progress import silent

N = 60
TEMPORARY = Path(tempfile.gettempdir())


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions of a few rows, runs of 1,536 edges: what is true of them is true of billions."""
    small = budget.IngestShares(spool=3 * 12288, merge=1 << 20, transpose=3 * 12288)
    monkeypatch.setattr(budget, "shares_of", lambda *_, **__: small)
    monkeypatch.setattr(pipeline, "BLOCK_EDGES", 100)
    monkeypatch.setattr(pipeline, "Reordered", lambda old, _, folder: Reordered(old, 300, folder))
    monkeypatch.setattr(reordering, "STEP", 3)


def skewed(count: int = 5000) -> Any:
    return (np.random.default_rng(0).random((2, count)) ** 3 * N).astype(np.int64)


def renumbered(graph: Graph, old: Any) -> Graph:
    """The graph whose vertex v is ``old[v]``, built in memory."""
    place = np.argsort(old)
    source, destination = graph.edge_list()
    return Graph.from_edges(
        place[source], place[destination], graph.num_vertices, undirected=False, edge_weight=graph.edge_weight
    )


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_edges_are_those_of_the_graph_in_memory_under_new_numbers(
    undirected: bool, weighted: bool, tmp_path: Path
) -> None:
    source, destination = np.unique(skewed(), axis=1)
    weight = ((source * destination + source + destination) % 13).astype(np.float32) if weighted else None
    edges = (source, destination) if weight is None else (source, destination, weight)
    stored = Graph.ingest(edges, tmp_path / "store", undirected=undirected, num_vertices=N + 3, reorder="degree")
    built = Graph.from_edges(source, destination, N + 3, undirected=undirected, edge_weight=weight)
    ids = open_ids(tmp_path / "store")
    assert isinstance(ids, np.ndarray)
    expected = renumbered(built, ids)
    assert np.array_equal(stored.indptr, expected.indptr)
    assert np.array_equal(stored.indices, expected.indices)
    assert not weighted or np.array_equal(stored.edge_weight, expected.edge_weight)
    if not undirected:
        assert np.array_equal(ids, vertex_order(built, "degree")), "one name stands for one order"
        out = open_out_edges(tmp_path / "store")
        assert out is not None
        assert np.array_equal(np.diff(out.indptr), np.bincount(stored.indices, minlength=N + 3))
    Graph.open(tmp_path / "store", verify=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40), st.booleans())
def test_most_ends_come_first_and_ties_by_old_number(pairs: list[tuple[int, int]], loops: bool) -> None:
    with EdgeScratch(TEMPORARY, weighted=False) as spool:
        for part in (pairs[:7], pairs[7:]):
            ends = np.array(part, np.int32).reshape(-1, 2)
            spool.add(ends[:, 0], ends[:, 1])
        found = degree_order(spool, 10, silent, loops=loops)
    counted = [end for pair in pairs if loops or pair[0] != pair[1] for end in pair]
    assert found.tolist() == sorted(range(10), key=lambda vertex: (-counted.count(vertex), vertex))


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("several", [False, True])
def test_rows_of_vertices_are_reordered_too(several: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    features, train = rng.random((N, 5), dtype=np.float32), rng.random(N) < 0.5
    labels = rng.integers(0, 2, (N, 3)).astype(bool) if several else rng.integers(0, 7, N)
    for name, array in (("x", features), ("y", labels), ("train", train), ("test", np.flatnonzero(~train))):
        np.save(tmp_path / f"{name}.npy", array)
    files = {"features": "x", "labels": "y", "train": "train", "test": "test"}
    paths = {name: tmp_path / f"{file}.npy" for name, file in files.items()}
    graph = Graph.ingest(tuple(skewed()), tmp_path / "store", reorder="degree", **paths)
    ids = open_ids(tmp_path / "store")
    assert graph.num_classes == (3 if several else 7)
    assert np.array_equal(graph.features, features[ids])
    assert np.array_equal(graph.labels, labels[ids])
    assert np.array_equal(graph.train_mask, train[ids])
    assert np.array_equal(graph.test_mask, ~train[ids])


@pytest.mark.usefixtures("little_memory")
def test_ids_of_the_input_are_reordered_too(tmp_path: Path) -> None:
    edges = "\n".join(f"{7 * source - 50} {7 * destination - 50}" for source, destination in skewed(300).T)
    (tmp_path / "edges.txt").write_text(edges)
    Graph.ingest(tmp_path / "edges.txt", tmp_path / "plain", ids="map")
    Graph.ingest(tmp_path / "edges.txt", tmp_path / "store", ids="map", reorder="degree")
    assert called(tmp_path / "plain") == called(tmp_path / "store")


@pytest.mark.usefixtures("little_memory")
def test_names_are_reordered_too(tmp_path: Path) -> None:
    lines = [f"n{'ö' * int(source % 7)}{source}\tn{'ö' * int(to % 7)}{to}" for source, to in skewed(300).T]
    (tmp_path / "edges.tsv").write_text("\n".join(lines))
    Graph.ingest(tmp_path / "edges.tsv", tmp_path / "plain")
    Graph.ingest(tmp_path / "edges.tsv", tmp_path / "store", reorder="degree")
    assert called(tmp_path / "plain") == called(tmp_path / "store")
    assert len(called(tmp_path / "store")) > 100


def called(store: Path) -> set[tuple[Any, Any]]:
    """The edges of a store by the original ids of their ends."""
    ids, (source, destination) = open_ids(store), Graph.open(store, verify=True).edge_list()
    if isinstance(ids, tuple):
        ids = np.array([bytes(ids[1][begin:end]).decode() for begin, end in pairwise(ids[0])])
    assert ids is not None
    return set(zip(ids[source].tolist(), ids[destination].tolist(), strict=True))


@pytest.mark.usefixtures("little_memory")
def test_a_conflict_within_many_runs_is_reported_in_the_numbers_of_the_input(tmp_path: Path) -> None:
    source, destination = np.unique(skewed(), axis=1)
    weight = np.ones(source.size, np.float32)
    again = (np.append(source, source[7]), np.append(destination, destination[7]), np.append(weight, 3.0))
    with pytest.raises(GraphError, match=f"edge {source[7]} -> {destination[7]} is given twice"):
        Graph.ingest(again, tmp_path / "store", undirected=False, reorder="degree")


def test_conflicting_weights_and_a_bad_row_are_reported_in_the_numbers_of_the_input(tmp_path: Path) -> None:
    edges = ([0, 5, 5, 3, 0], [1, 2, 4, 5, 1], [1.0, 1.0, 1.0, 1.0, 2.0])
    with pytest.raises(GraphError, match=r"edge 0 -> 1 is given twice, with weights 1\.0 and 2\.0"):
        Graph.ingest(edges, tmp_path / "store", undirected=False, reorder="degree")
    np.save(tmp_path / "x.npy", np.where(np.arange(6) == 4, np.nan, 0.0)[:, None])
    with pytest.raises(GraphError, match="the features of vertex 4 "):
        Graph.ingest(edges[:2], tmp_path / "store", reorder="degree", features=tmp_path / "x.npy")
    assert [each.name for each in tmp_path.iterdir()] == ["x.npy"]


def test_an_order_that_does_not_fit_is_reported_before_any_work(tmp_path: Path) -> None:
    reports: list[Any] = []
    with pytest.raises(ConfigError, match=r"11\.2 GiB of them to reorder vertices, .* give at least"):
        Graph.ingest(([0], [1]), tmp_path / "store", reorder="degree", num_vertices=10**9, tell=reports.append)
    with pytest.raises(ConfigError, match="degree, none"):
        Graph.ingest(([0], [1]), tmp_path / "store", reorder="degrees")
    assert (reports, list(tmp_path.iterdir())) == ([], [])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=6), max_size=20), st.integers(1, 500), st.randoms())
def test_names_come_in_any_order_through_any_regions(names: list[str], memory_bytes: int, random: Any) -> None:
    old = np.array(random.sample(range(len(names)), len(names)), np.int32)
    blocks = [Tokens.of(names[begin : begin + 4]) for begin in range(0, len(names), 4)]
    found = [
        name for block in Reordered(old, memory_bytes, TEMPORARY).names(lambda: blocks) for name in block.to_list()
    ]
    assert found == [names[each] for each in old]
