"""An ingest writes the same store as building the graph in memory, and leaves nothing after an error."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import dorylus.ingest.budget as budget
import dorylus.ingest.pipeline as pipeline
from dorylus.backends import native
from dorylus.errors import ConfigError, DataError, GraphError
from dorylus.graph import Graph
from dorylus.graph.store import open_ids, open_out_edges
from dorylus.ingest.batches import EdgeBatch, Tokens
from dorylus.ingest.entry_point import ArrayEdges, ingest_edges
from dorylus.ingest.numbering import DenseIds
from dorylus.ingest.pipeline import ingest
from dorylus.ingest.settings import IngestSettings
from dorylus.progress import StageProgress

EDGES = ([0, 3, 3, 1, 2, 0], [1, 1, 1, 3, 2, 1])


@pytest.fixture
def many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for runs of 1,536 edges and blocks of 100: what is true of them is true of billions."""
    small = budget.IngestShares(spool=3 * 12288, merge=1 << 20, transpose=3 * 12288)
    monkeypatch.setattr(budget, "shares_of", lambda *_, **__: small)
    monkeypatch.setattr(pipeline, "BLOCK_EDGES", 100)


def same_edges(stored: Graph, built: Graph) -> None:
    assert (stored.directed, stored.num_vertices) == (built.directed, built.num_vertices)
    assert np.array_equal(stored.indptr, built.indptr)
    assert np.array_equal(stored.indices, built.indices)
    assert (stored.edge_weight is None) == (built.edge_weight is None)
    assert stored.edge_weight is None or np.array_equal(stored.edge_weight, built.edge_weight)


@pytest.mark.usefixtures("many_runs")
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_edges_of_many_runs_make_the_same_graph_as_in_memory(undirected: bool, weighted: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    source, destination = rng.integers(0, 300, (2, 20_000))
    weight = (source * destination % 13).astype(np.float32) if weighted else None
    given_edges = (source, destination, weight) if weighted else (source, destination)
    stored = Graph.ingest(given_edges, tmp_path / "store", undirected=undirected, num_vertices=310)
    same_edges(stored, Graph.from_edges(source, destination, 310, undirected=undirected, edge_weight=weight))
    Graph.open(tmp_path / "store", verify=True)
    out = open_out_edges(tmp_path / "store")
    assert (out is None) == undirected
    if out is not None:
        turned = native.csr_transpose(stored.indptr, stored.indices, 310, values=stored.edge_weight)
        for mine, theirs in zip(out, turned, strict=True):
            assert (mine is None and theirs is None) or np.array_equal(mine, theirs)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40), st.booleans())
def test_any_small_graph_is_the_same_as_in_memory(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], undirected: bool
) -> None:
    source, destination = (list(ends) for ends in zip(*pairs, strict=True))
    path = tmp_path_factory.mktemp("small") / "store"
    stored = Graph.ingest((source, destination), path, undirected=undirected)
    same_edges(stored, Graph.from_edges(source, destination, undirected=undirected))


def test_self_loops_are_dropped_and_repeats_kept_on_request(tmp_path: Path) -> None:
    options = {"undirected": False, "drop_self_loops": True, "drop_duplicates": False}
    stored = Graph.ingest(EDGES, tmp_path / "store", **options)
    assert stored.indices.tolist() == [0, 0, 3, 3, 1]
    assert stored.indptr.tolist() == [0, 0, 4, 4, 5]


def test_no_edges_make_a_graph_of_lone_vertices(tmp_path: Path) -> None:
    stored = Graph.ingest(([], []), tmp_path / "store", num_vertices=3)
    assert (stored.num_vertices, stored.num_edges) == (3, 0)


def test_one_array_holds_both_ends(tmp_path: Path) -> None:
    built = Graph.from_edges(*EDGES)
    for name, array in (("rows", np.array(EDGES).T), ("columns", np.array(EDGES))):
        same_edges(Graph.ingest(array, tmp_path / name), built)
    assert Graph.ingest(np.array([[0, 1], [0, 2]]), tmp_path / "square", undirected=False).indices.tolist() == [0, 0]


def test_rows_far_apart_get_their_offsets(tmp_path: Path) -> None:
    stored = Graph.ingest(([5, 3_000_000], [2_500_000, 0]), tmp_path / "store", undirected=False)
    assert stored.num_vertices == 3_000_001
    assert stored.indptr[[0, 1, 2_500_000, 2_500_001, 3_000_001]].tolist() == [0, 1, 1, 2, 2]


REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "two weights": (
        ([0, 1, 0], [1, 2, 1], [1.0, 1.0, 2.0]),
        {"undirected": False},
        GraphError,
        "edge 0 -> 1 is given twice, with weights 1.0 and 2.0 as float32. Merge repeated edges first, or keep them",
    ),
    "two weights, both ways": (([0, 1], [1, 0], [1.0, 2.0]), {}, GraphError, "pass undirected=False .*if direction"),
    "no number": (([0, 1], [1, 2], [1.0, np.nan]), {}, GraphError, r"the weight of edge 1 -> 2 \(number 1\) is nan"),
    "no number, other ids": (([0, 70], [1, 50], [1.0, np.nan]), {"ids": "map"}, GraphError, "weight of edge 70 -> 50"),
    "a vertex too many": (
        ([0, 7], [1, 2]),
        {"num_vertices": 5},
        GraphError,
        r"edge 7 -> 2 \(number 1\) names vertex 7",
    ),
    "a negative one": (([0, -1], [1, 2]), {}, DataError, "-1"),
    "uneven ends": (([0, 1], [1]), {}, GraphError, "there are 2 and 1 sources, destinations"),
    "little memory": (EDGES, {"memory": "1MB"}, ConfigError, r"memory is 1,000,000 bytes .*: give at least"),
    "no memory": (EDGES, {"memory": "lots"}, ConfigError, "memory='lots' is no amount"),
    "a misspelled setting": (EDGES, {"memroy": 5}, ConfigError, "Did you mean 'memory'"),
    "a setting of files": (EDGES, {"delimiter": ","}, ConfigError, "delimiter=',' says how to read files"),
    "flat edges": (np.arange(6), {}, GraphError, r"edges have shape \[6\]\. Edges are of shape \[edges, 2\] or"),
    "a list of pairs": (
        [(0, 1), (1, 2)],
        {},
        ConfigError,
        "edges are given as list of tuple: give files",
    ),
    "no edges at all": (7, {}, ConfigError, "edges are given as int: give files"),
    "too many vertices": (EDGES, {"num_vertices": 2**40}, ConfigError, "a graph has from 0 to"),
}


@pytest.mark.parametrize(("edges", "options", "error", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_input_is_refused_in_one_sentence_and_leaves_nothing(
    edges: Any, options: dict[str, Any], error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=sentence):
        Graph.ingest(edges, tmp_path / "store", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reorder", ["none", "degree"])
def test_an_undirected_edge_with_two_weights_is_reported_as_in_the_file(reorder: str, tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("1 2 10\n1 3 7\n1 2 20\n")
    sentence = r"edge 1 - 2 is given twice, .*, or, if the third column is no weight, leave it out by columns=\(0, 1\)"
    with pytest.raises(GraphError, match=sentence):
        Graph.ingest(tmp_path / "edges.txt", tmp_path / "store", reorder=reorder)


def test_a_store_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    Graph.ingest(EDGES, tmp_path / "store", name="first")
    with pytest.raises(DataError, match="exists already"):
        Graph.ingest(EDGES, tmp_path / "store", name="second")
    assert Graph.open(tmp_path / "store").name == "first"
    assert Graph.ingest(EDGES, tmp_path / "store", name="second", overwrite=True).name == "second"
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


def test_too_little_disk_is_reported_before_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget.shutil, "disk_usage", lambda _: type("", (), {"free": 50}))
    sentence = r"needs 128\.1 KiB of space for the store, which will have 56 B, .* but 50 B are free\. Make room"
    with pytest.raises(DataError, match=sentence):
        Graph.ingest(EDGES, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_reported_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pipeline.EdgeSort, "add", full)
    with pytest.raises(DataError, match=r"could not write the store .*No space left on device.*free space"):
        Graph.ingest(EDGES, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("many_runs")
def test_every_stage_reports_its_progress_and_ends_at_its_total(tmp_path: Path) -> None:
    reports: list[StageProgress] = []
    source = ArrayEdges(*np.random.default_rng(0).integers(0, 50, (2, 3000)), batch=1000)
    made = ingest(source, DenseIds(), tmp_path / "store", IngestSettings(undirected=False), reports.append)
    stages = ["reading edges", "writing in-edges", "writing out-edges"]
    assert list(dict.fromkeys(each.stage for each in reports)) == stages
    for stage in stages:
        steps = [each for each in reports if each.stage == stage]
        done = [each.done for each in steps]
        assert len(steps) >= 3
        assert done == sorted(done)
        assert steps[-1].done == steps[-1].total
    assert (made.num_read, made.num_vertices) == (3000, 50)
    assert made.num_edges == Graph.open(tmp_path / "store").num_edges < 3000


class Named:
    """A numbering that gives ids back."""

    def __init__(self, *blocks: Any) -> None:
        self.blocks, self.num_vertices = blocks, 4

    def ends(self, batch: EdgeBatch) -> tuple[Any, Any]:
        return batch.source.astype(np.int32), batch.destination.astype(np.int32)

    def original(self) -> Iterator[Any]:
        return iter(self.blocks)


def test_integer_ids_of_the_input_are_kept(tmp_path: Path) -> None:
    numbering = Named(np.array([10, -7]), np.array([2**60, 3]))
    ingest(ArrayEdges(*EDGES), numbering, tmp_path / "store", IngestSettings())
    ids = open_ids(tmp_path / "store")
    assert isinstance(ids, np.ndarray)
    assert ids.tolist() == [10, -7, 2**60, 3]
    assert Graph.open(tmp_path / "store", verify=True).num_vertices == 4


def test_string_ids_of_the_input_are_kept(tmp_path: Path) -> None:
    numbering = Named(Tokens.of(["anna", ""]), Tokens.of(["bö"]), Tokens.of(["carl"]))
    ingest(ArrayEdges(*EDGES), numbering, tmp_path / "store", IngestSettings())
    found = open_ids(tmp_path / "store")
    assert isinstance(found, tuple)
    offsets, raw = found
    texts = [bytes(raw[begin:end]).decode() for begin, end in pairwise(offsets)]
    assert texts == ["anna", "", "bö", "carl"]


def test_ids_for_other_vertices_than_there_are_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"name 4 vertices, but the graph has 9: give a file"):
        ingest(ArrayEdges(*EDGES), Named(np.arange(4)), tmp_path / "store", IngestSettings(num_vertices=9))


def test_weights_of_some_edges_only_are_refused(tmp_path: Path) -> None:
    class Mixed:
        total_bytes = None

        def __iter__(self) -> Iterator[EdgeBatch]:
            yield from ArrayEdges([0], [1], [1.0])
            yield from ArrayEdges([0], [2])

    with pytest.raises(DataError, match="some edges of the input have a weight and some have none"):
        ingest_edges(Mixed(), tmp_path / "store")


def test_too_many_runs_to_merge_are_reported_before_work_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = budget.IngestShares(spool=3 * 12288, merge=2 * 12288, transpose=3 * 12288)
    monkeypatch.setattr(budget, "shares_of", lambda *_, **__: few)
    reports: list[StageProgress] = []
    ends = np.zeros(2000, np.int64)
    with pytest.raises(ConfigError, match=r"makes 3 sorted runs, but 2 can be merged: give at least 2049 MiB"):
        Graph.ingest((ends, ends), tmp_path / "store", tell=reports.append)

    class Unknown:  # the number of edges is known only after reading
        total_bytes = None

        def __iter__(self) -> Iterator[EdgeBatch]:
            pairs = np.random.default_rng(0).integers(0, 10**6, (2, 4000))
            yield from ArrayEdges(*pairs, batch=1000)

    assert reports == []
    with pytest.raises(ConfigError, match="sorted runs, but 2 can be merged"):
        ingest_edges(Unknown(), tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
