"""Rows of vertices belong to the ids that a list names; errors about mismatches name the user's ids."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dorylus.errors import ConfigError, DorylusError
from dorylus.graph import Graph
from dorylus.graph.store import open_ids

NAMES, NUMBERS = "ann bob\nbob cid\n", "10 20\n20 30\n"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(6.0).reshape(3, 2))


def ingested(edges: str, **options: Any) -> Graph:
    Path("edges.txt").write_text(edges)
    return Graph.ingest("edges.txt", "store", **options)


@pytest.mark.parametrize(("edges", "ids"), [(NAMES, "auto"), (NUMBERS, "map"), (NUMBERS, "strings")])
@pytest.mark.parametrize("rows", [{"features": "x.npy"}, {"labels": [0, 1, 0]}, {"labels": [0, 1, 0], "train": [2]}])
def test_rows_of_ids_that_are_numbered_as_they_come_need_a_list(edges: str, ids: str, rows: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=rf"are given \({', '.join(rows)}\).* Say which vertex each row belongs to by vertices="
    ):
        ingested(edges, ids=ids, **rows)
    assert not Path("store").exists()
    assert ingested(edges, ids=ids).num_vertices == 3, "without rows no list is needed"


@pytest.mark.parametrize("listed", ["10\n-7\n99\n5\n", "5000000000\n10\n-7\n99\n"])
def test_a_list_may_hold_any_numbers_without_an_ids_setting(listed: str) -> None:
    Path("list.txt").write_text(listed)
    ingested("10 -7\n99 10\n", vertices="list.txt")
    ids = open_ids(Path("store"))
    assert ids is not None
    assert list(ids[:]) == [int(line) for line in listed.split()]


def test_rows_belong_to_the_ids_of_the_list() -> None:
    Path("list.txt").write_text("cid\nann\nbob\n")
    graph = ingested(NAMES, features="x.npy", vertices="list.txt")
    assert graph.features.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert graph.indices.tolist() == [2, 2, 0, 1], "cid - bob, ann - bob"


def test_an_array_may_be_the_list() -> None:
    ingested(NUMBERS, features="x.npy", vertices=np.array([30, 10, 20]))
    ids = open_ids("store")
    assert isinstance(ids, np.ndarray)
    assert ids.tolist() == [30, 10, 20]


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "few rows": (
        "0 1\n1 7\n",
        {"features": "x.npy"},
        r"edge 1 -> 7 .* names vertex 7, but x\.npy has 3 rows, one per vert",
    ),
    "rows and a number": ("0 1\n", {"features": "x.npy", "num_vertices": 9}, r"num_vertices=9, but x\.npy has 3 rows"),
    "ids too many": (
        NUMBERS,
        {"ids": "map", "num_vertices": 2},
        r"edge 20 -> 30 \(edges\.txt, line 2\) names vertex 30",
    ),
    "names too many": (
        NAMES,
        {"num_vertices": 2},
        r"edge 'bob' -> 'cid' \(edges\.txt, line 2\) names vertex 'cid'",
    ),
    "two weights": ("a b 1\na b 2\n", {"undirected": False}, "edge 'a' -> 'b' is given twice"),
    "two weights of numbers": ("70 50 1\n70 50 2\n", {"ids": "map", "undirected": False}, "edge 70 -> 50 is given tw"),
    "a list of names": (
        NUMBERS,
        {"vertices": "names.txt"},
        r"names\.txt lists names, but the ends of edges are numbers",
    ),
    "a list of numbers": (NAMES, {"vertices": "numbers.npy"}, r"numbers\.npy lists numbers, but .* are names"),
    "a list of fractions": (NUMBERS, {"vertices": "x.npy"}, r"x\.npy: .* float64\. Ids of vertices are whole numbers"),
    "a bad line in the list": (NUMBERS, {"vertices": "mixed.txt"}, r"line 3: 'x' is not an id in a list of numbers"),
    "a repeated name": (
        NAMES,
        {"vertices": "twice.txt"},
        r"names 'ann' twice, again at twice\.txt, line 4\. ",
    ),
    "a short list": (NUMBERS, {"vertices": "numbers.npy"}, r"the end 30, which is not among .* or drop the edge\.$"),
    "a list and rows": (
        NUMBERS,
        {"vertices": "numbers.npy", "features": "x.npy"},
        r"list of vertices has 2 ids, but x\.npy has 3 rows, one per vertex\. Give an id for every row",
    ),
    "a list and a number": (
        NUMBERS,
        {"vertices": "numbers.npy", "num_vertices": 3},
        "2 ids, but num_vertices=3. Leave",
    ),
}


@pytest.mark.parametrize(("edges", "options", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_errors_about_mismatches_name_the_mismatched_input(edges: str, options: dict[str, Any], sentence: str) -> None:
    Path("names.txt").write_text("ann\nbob\ncid\n")
    Path("twice.txt").write_text("ann\nbob\ncid\nann\n")
    Path("mixed.txt").write_text("10\n20\nx\n30\n")
    np.save("numbers.npy", np.array([10, 20]))
    with pytest.raises(DorylusError, match=sentence):
        ingested(edges, **options)
    assert not Path("store").exists()
