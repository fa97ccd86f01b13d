"""Tables of edges and vertices become a graph: rows joined by id, classes and categories by name, values checked."""

import gzip
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from dorylus.errors import ConfigError, DataError, DorylusError
from dorylus.graph import Graph
from dorylus.ingest import ingest_edges, vertex_table
from dorylus.ingest.readers import table as table_reader

EDGES = "from,to\nann,bob\nbob,cid\ncid,dan\n"
VERTICES = """id,kind,age,tall,city,part
dan,cat,4,true,Rome,test
ann,dog,1.5,false,Bern,train
cid,cat,3,true,Rome,val
bob,,2,false,Bern,train
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.csv").write_text(EDGES)
    Path("v.csv").write_text(VERTICES)


def from_text(vertices: str, edges: str = EDGES, **options: Any) -> Graph:
    Path("v.csv").write_text(vertices)
    Path("e.csv").write_text(edges)
    return Graph.from_tables("e.csv", "v.csv", **options)


def edges_by_id(graph: Graph) -> set[tuple[Any, Any]]:
    ids = list(graph.ids if graph.ids is not None else range(graph.num_vertices))
    return {(ids[u], ids[v]) for u, v in zip(*map(np.ndarray.tolist, graph.edge_list()), strict=True)}


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": ["a", "b", "c"], **columns})


PAIRS = pd.DataFrame({"s": ["a", "b"], "t": ["b", "c"]})


def test_rows_are_joined_by_id_whatever_their_order() -> None:
    graph = Graph.from_tables("e.csv", "v.csv", label="kind", split="part", undirected=False)
    assert list(graph.ids) == ["dan", "ann", "cid", "bob"]
    assert edges_by_id(graph) == {("ann", "bob"), ("bob", "cid"), ("cid", "dan")}
    assert graph.class_names == ("cat", "dog")
    assert graph.labels.tolist() == [0, 1, 0, -1], "an empty label is none"
    assert graph.feature_names == ("age", "tall", "city=Bern", "city=Rome")
    assert graph.features.tolist() == [[4, 1, 0, 1], [1.5, 0, 1, 0], [3, 1, 0, 1], [2, 0, 1, 0]]
    assert graph.features.dtype == np.float32
    assert graph.train_mask.tolist() == [False, True, False, False], "bob has no label, so he is in no split"
    assert graph.val_mask.tolist() == [False, False, True, False]
    assert graph.test_mask.tolist() == [True, False, False, False]


def in_pandas() -> tuple[Any, Any]:
    return pd.read_csv("e.csv"), pd.read_csv("v.csv")


def in_polars() -> tuple[Any, Any]:
    return pl.read_csv("e.csv"), pl.read_csv("v.csv")


def in_pyarrow() -> tuple[Any, Any]:
    return tuple(pa.Table.from_pandas(each) for each in in_pandas())


def in_duckdb() -> tuple[Any, Any]:
    return duckdb.sql("from 'e.csv'"), duckdb.sql("from 'v.csv'")


def in_parquet() -> tuple[Any, Any]:
    for name, each in zip("ev", in_pandas(), strict=True):
        each.to_parquet(f"{name}.parquet", index=False)
    return "e.parquet", "v.parquet"


def in_gzip() -> tuple[Any, Any]:
    for name in "ev":
        Path(f"{name}.csv.gz").write_bytes(gzip.compress(Path(f"{name}.csv").read_bytes()))
    return "e.csv.gz", "v.csv.gz"


def with_marks() -> tuple[Any, Any]:
    for name in "ev":
        text = Path(f"{name}.csv").read_text().replace("\n", "\r\n")
        Path(f"{name}.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    return "e.csv", "v.csv"


def in_tabs() -> tuple[Any, Any]:
    for name in "ev":
        Path(f"{name}.tsv").write_text(Path(f"{name}.csv").read_text().replace(",", "\t"))
    return "e.tsv", "v.tsv"


def in_parts() -> tuple[Any, Any]:
    Path("parts").mkdir()
    lines = VERTICES.splitlines(keepends=True)
    Path("parts/1.csv").write_text("".join(lines[:3]))
    Path("parts/2.csv").write_text(lines[0] + "".join(lines[3:]))
    return "e.csv", "parts"


@pytest.mark.parametrize(
    "form", [in_pandas, in_polars, in_pyarrow, in_duckdb, in_parquet, in_gzip, with_marks, in_tabs, in_parts]
)
def test_every_form_of_a_table_makes_the_same_graph(form: Any) -> None:
    expected = Graph.from_tables("e.csv", "v.csv", label="kind", split="part")
    graph = Graph.from_tables(*form(), label="kind", split="part")
    assert_same(graph, expected)


def assert_same(graph: Graph, expected: Graph) -> None:
    for name in ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(expected, name), err_msg=name)
    assert list(graph.ids) == list(expected.ids)
    assert (graph.class_names, graph.feature_names) == (expected.class_names, expected.feature_names)


@pytest.mark.parametrize("reorder", ["none", "degree"])
@pytest.mark.parametrize("split", ["part", {"train": 0.5}, {"train": ["ann"], "val": ["cid"]}])
def test_an_ingest_makes_the_same_graph_as_memory(reorder: str, split: Any) -> None:
    expected = Graph.from_tables("e.csv", "v.csv", label="kind", split=split)
    graph = Graph.ingest("e.csv", "store", vertices="v.csv", label="kind", split=split, reorder=reorder)
    if reorder == "none":
        assert_same(graph, expected)
    assert edges_by_id(graph) == edges_by_id(expected)
    by_id = {
        vertex: (row.tolist(), label)
        for vertex, row, label in zip(graph.ids, graph.features, graph.labels, strict=True)
    }
    assert by_id == {
        v: (r.tolist(), label) for v, r, label in zip(expected.ids, expected.features, expected.labels, strict=True)
    }


def test_names_survive_a_store_and_a_derived_graph() -> None:
    graph = Graph.from_tables("e.csv", "v.csv", label="kind")
    graph.save("saved")
    for each in (Graph.open("saved"), Graph.open("saved").row_normalised()):
        assert list(each.ids) == ["dan", "ann", "cid", "bob"]
        assert each.class_names == ("cat", "dog")
        assert each.feature_names == graph.feature_names
    Graph.open("saved").save("again")
    assert Graph.open("again", verify=True).ids[1:3] == ["ann", "cid"]


@pytest.mark.parametrize("numbers", [[30, 10, 20], [-5, 2**62, 0]])
def test_ids_may_be_any_whole_numbers(numbers: list[int]) -> None:
    edges = pd.DataFrame({"s": numbers[:2], "t": numbers[1:]})
    graph = Graph.from_tables(edges, pd.DataFrame({"id": numbers, "x": [1, 2, 3]}))
    assert graph.ids.tolist() == numbers
    assert (numbers[0], numbers[1]) in edges_by_id(graph)


def test_ids_with_leading_zeros_are_texts() -> None:
    graph = from_text("id,x\n007,1\n7,2\n", "s,t\n007,7\n", undirected=False)
    assert edges_by_id(graph) == {("007", "7")}


def test_texts_in_one_table_make_the_numbers_of_the_other_texts() -> None:
    edges, vertices = pd.DataFrame({"s": [1], "t": [2]}), pd.DataFrame({"id": ["2", "1"], "x": [1, 2]})
    assert edges_by_id(Graph.from_tables(edges, vertices, undirected=False)) == {("1", "2")}


def test_without_a_column_of_ids_rows_count_from_zero() -> None:
    graph = Graph.from_tables(pd.DataFrame({"s": [0], "t": [2]}), pd.DataFrame({"x": [1.0, 2, 3]}))
    assert graph.ids is None
    assert graph.num_vertices == 3


def test_edges_have_columns_of_any_name_and_weights() -> None:
    edges = pd.DataFrame({"w": [0.5, 2], "when": ["mon", "tue"], "b": ["b", "c"], "a": ["a", "b"]})
    graph = Graph.from_tables(edges, frame(x=[1, 2, 3]), source="a", target="b", weight="w", undirected=False)
    assert edges_by_id(graph) == {("a", "b"), ("b", "c")}
    assert graph.edge_weight.tolist() == [0.5, 2]


BAD_EDGES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "two weights": ({"s": ["a", "a"], "t": ["b", "b"], "w": [1, 2]}, {}, r"edge 'a' -> 'b'|edge 'b' -> 'a'"),
    "missing weight": ({"s": ["a", "a"], "t": ["b", "c"], "w": [1, None]}, {}, r"edges, row 1: 'w' is missing"),
    "infinite weight": ({"s": ["a"], "t": ["b"], "w": [np.inf]}, {}, r"edges, row 0: the weight is inf"),
    "text as weight": ({"s": ["a"], "t": ["b"], "w": ["heavy"]}, {}, r"the weight 'w' holds large_string"),
    "missing end": ({"s": ["a", None], "t": ["b", "c"]}, {}, r"edges, row 1: 's' is missing"),
    "empty end": ({"s": ["a", ""], "t": ["b", "c"]}, {}, r"edges, row 1: an id is empty"),
    "many columns": ({"s": ["a"], "t": ["b"], "w": [1], "q": [1]}, {}, r"edges has 4 columns .* columns=\(0, 1\)"),
    "unknown column": ({"s": ["a"], "t": ["b"]}, {"source": "z"}, r"edges has no column 'z': its columns are 's', 't'"),
    "one column for both": ({"s": ["a"], "t": ["b"]}, {"source": "s", "target": "s"}, r"uses .*'s'.* for both ends"),
    "reversed": ({"target": ["a"], "source": ["b"]}, {}, r"the first column is called 'target'"),
    "fractions": ({"s": [0.5], "t": [1.5]}, {}, r"edges: 's' holds double"),
    "columns twice": ({"s": ["a"], "t": ["b"]}, {"source": "s", "columns": (0, 1)}, r"give one of the two"),
    "how to read files": ({"s": ["a"], "t": ["b"]}, {"delimiter": ";"}, r"delimiter says how to read files"),
}


@pytest.mark.parametrize("case", BAD_EDGES)
def test_a_bad_table_of_edges_is_refused_in_a_sentence(case: str) -> None:
    columns, options, message = BAD_EDGES[case]
    with pytest.raises(DorylusError, match=message) as error:
        Graph.from_tables(pd.DataFrame(columns), frame(x=[1, 2, 3]), **options)
    assert "\n" not in str(error.value)


def test_edges_to_unknown_ids_may_be_dropped() -> None:
    edges = pd.concat([PAIRS, pd.DataFrame({"s": ["a"], "t": ["z"]})])
    graph = Graph.from_tables(edges, frame(x=[1, 2, 3]), drop_unknown=True)
    assert edges_by_id(graph) == {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")}
    edges.to_csv("e.csv", index=False)
    frame(x=[1, 2, 3]).to_csv("v.csv", index=False)
    stored = Graph.ingest("e.csv", "store", vertices="v.csv", id="id", drop_unknown=True)
    assert edges_by_id(stored) == edges_by_id(graph)


@pytest.mark.parametrize("header", ["from,to", "x,target", "a,b,w"])
def test_a_header_with_known_names_or_above_weights_is_no_edge(header: str) -> None:
    weight = ",0.5" if header.endswith("w") else ""
    Path("e.csv").write_text(f"{header}\nann,bob{weight}\nbob,cid{weight}\n")
    for graph in (
        Graph.ingest("e.csv", "store", undirected=False),
        Graph.from_tables("e.csv", "v.csv", features="age", undirected=False),
    ):
        assert edges_by_id(graph) == {("ann", "bob"), ("bob", "cid")}


def test_a_header_with_any_names_is_no_edge_where_vertices_are_known() -> None:
    graph = from_text(VERTICES, "citing,cited\nann,bob\nbob,cid\n", features="age", undirected=False)
    assert edges_by_id(graph) == {("ann", "bob"), ("bob", "cid")}
    made = ingest_edges("e.csv", "store", vertices="v.csv", features="age", id="id")
    assert (made.num_read, made.num_dropped) == (2, 0)


def test_a_first_edge_between_vertices_is_no_header() -> None:
    graph = from_text(VERTICES, "ann,bob\nbob,cid\n", features="age", undirected=False)
    assert edges_by_id(graph) == {("ann", "bob"), ("bob", "cid")}


def test_classes_that_are_numbers_are_sorted_as_numbers() -> None:
    graph = Graph.from_tables(PAIRS, frame(y=[10, 9, 100], x=[1, 2, 3]), label="y")
    assert graph.class_names == ("9", "10", "100")
    assert graph.labels.tolist() == [1, 0, 2]


def test_a_missing_number_is_no_label() -> None:
    graph = Graph.from_tables(PAIRS, frame(y=[1, None, 0], x=[1, 2, 3]), label="y")
    assert graph.class_names == ("0", "1")
    assert graph.labels.tolist() == [1, -1, 0]


def test_classes_and_categories_of_all_batches_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "BATCH_ROWS", 7)
    names = [f"v{k}" for k in range(100)]
    vertices = pd.DataFrame({"id": names, "y": [f"c{99 - k}" for k in range(100)], "x": [k % 10 for k in range(100)]})
    vertices["city"] = pd.Categorical([f"t{k // 30}" for k in range(100)])
    vertices.to_parquet("v.parquet")
    graph = Graph.from_tables(pd.DataFrame({"s": ["v0"], "t": ["v99"]}), "v.parquet", label="y")
    assert graph.class_names == tuple(sorted(vertices["y"]))
    assert [graph.class_names[k] for k in graph.labels] == vertices["y"].tolist()
    assert graph.feature_names == ("x", "city=t0", "city=t1", "city=t2", "city=t3")
    assert graph.features[:, 1:].argmax(axis=1).tolist() == [k // 30 for k in range(100)]


def test_features_are_chosen_by_name_and_pattern_and_may_be_lists() -> None:
    vertices = frame(f1=[1, 2, 3], g=[7, 8, 9], f2=[True, False, True], emb=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    vertices["family"] = "p"
    graph = Graph.from_tables(PAIRS, vertices, label="family", features=["emb", "f*"])
    assert graph.feature_names == ("emb[0]", "emb[1]", "f1", "f2")
    assert graph.features.tolist() == [[1, 2, 1, 1], [3, 4, 2, 0], [5, 6, 3, 1]]


def test_numbers_may_be_categories() -> None:
    graph = Graph.from_tables(PAIRS, frame(zip=[9, 10, 9]), categories="zip")
    assert graph.feature_names == ("zip=9", "zip=10")


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), 2), pa.large_list(pa.int64())])
@pytest.mark.parametrize(("fill", "expected"), [(7, [7, 7]), ("mean", [2, 3])])
def test_missing_lists_are_filled_by_position(kind: Any, fill: Any, expected: list[float]) -> None:
    emb = pa.array([[1, 2], None, [3, 4]], kind)
    graph = Graph.from_tables(PAIRS, pa.table({"id": ["a", "b", "c"], "emb": emb}), fill=fill)
    assert graph.features.tolist() == [[1, 2], expected, [3, 4]]


@pytest.mark.parametrize("column", ["id", "city", "kind", "part"])
def test_texts_of_parquet_that_are_not_utf8_are_refused_by_row(column: str) -> None:
    values: dict[str, list[bytes]] = {
        "id": [b"a", b"b", b"c"],
        "city": [b"x"] * 3,
        "kind": [b"k"] * 3,
        "part": [b""] * 3,
    }
    values[column][1] = b"\xff"
    types = {name: pa.string() for name in values}
    table = pa.table({name: pa.array(each).view(types[name]) for name, each in values.items()})
    parquet.write_table(table, "v.parquet")
    with pytest.raises(DataError, match=rf"v\.parquet, row 1 .* column '{column}' is not UTF-8: b'.xff'"):
        Graph.from_tables(PAIRS, "v.parquet", label="kind", split="part")


def test_float32_features_keep_their_bits() -> None:
    values = np.array([0.1, 1e-30, 3e38], np.float32)
    np.testing.assert_array_equal(Graph.from_tables(PAIRS, frame(x=values)).features[:, 0], values)


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        (0, [[1, 5], [0, 0], [3, 7]]),
        ("mean", [[1, 5], [2, 6], [3, 7]]),
        ({"x": 9, "y": "mean"}, [[1, 5], [9, 6], [3, 7]]),
    ],
)
@pytest.mark.parametrize("csv", [True, False])
def test_missing_features_are_filled_as_requested(fill: Any, expected: list[list[float]], csv: bool) -> None:
    vertices: Any = frame(x=[1, None, 3], y=[5.0, np.nan, 7])
    if csv:
        vertices.to_csv("v.csv", index=False)
        vertices = "v.csv"
    assert Graph.from_tables(PAIRS, vertices, fill=fill).features.tolist() == expected


def test_a_missing_category_gets_the_category_that_is_named() -> None:
    graph = Graph.from_tables(PAIRS, frame(city=["Rome", None, "Bern"]), fill={"city": "none"})
    assert graph.feature_names == ("city=Bern", "city=Rome", "city=none")
    assert graph.features.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    "split",
    [
        {"train": ["a", "b"], "test": ["c"]},
        {"train": [0, 1], "test": [2]},
        {"train": np.array([True, True, False]), "test": [False, False, True]},
        {"train": "in_train", "test": "in_test"},
    ],
)
@pytest.mark.parametrize("stored", [True, False])
def test_a_split_is_ids_positions_masks_or_columns(split: Any, stored: bool) -> None:
    vertices = frame(y=["p", "q", "p"], in_train=[True, True, False], in_test=[0, 0, 1], x=[1, 2, 3])
    options = {"label": "y", "features": "x", "split": split}
    graph = Graph.from_tables(PAIRS, vertices, **options)
    if stored:
        graph = Graph.ingest(PAIRS, "store", vertices=vertices, **options)
    assert graph.train_mask.tolist() == [True, True, False]
    assert graph.test_mask.tolist() == [False, False, True]


@pytest.mark.parametrize("rows", [13, 1 << 16])
def test_shares_are_of_every_class_and_depend_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(table_reader, "BATCH_ROWS", rows)
    monkeypatch.setattr(vertex_table, "STRATIFY_ROWS", 64)
    vertices = pd.DataFrame({"id": range(1000), "y": ["rare"] * 10 + ["often"] * 890 + [None] * 100, "x": 1.0})
    edges = pd.DataFrame({"s": [0], "t": [999]})

    def masks(seed: int) -> list[list[bool]]:
        graph = Graph.from_tables(edges, vertices, label="y", split={"train": 0.6, "val": 0.2}, seed=seed)
        for mask, share in ((graph.train_mask, 0.6), (graph.val_mask, 0.2), (graph.test_mask, 0.2)):
            assert mask[:10].sum() == 10 * share
            assert mask[10:900].sum() == 890 * share
            assert not mask[900:].any(), "a vertex without a label is in no split"
        assert not (graph.train_mask & graph.val_mask).any()
        return [graph.train_mask.tolist(), graph.val_mask.tolist()]

    assert masks(1) == masks(1)
    assert masks(1) != masks(2)
    monkeypatch.setattr(table_reader, "BATCH_ROWS", 100)
    assert masks(1) == masks(1)


def test_the_split_of_a_seed_does_not_depend_on_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    vertices = pd.DataFrame({"id": range(500), "y": [k % 3 for k in range(500)], "x": 1.0})
    edges = pd.DataFrame({"s": [0], "t": [499]})
    found = []
    for rows in (11, 500):
        monkeypatch.setattr(table_reader, "BATCH_ROWS", rows)
        graph = Graph.from_tables(edges, vertices, label="y", split={"train": 0.3, "val": 0.3, "test": 0.2})
        found.append([graph.train_mask.tolist(), graph.val_mask.tolist(), graph.test_mask.tolist()])
        assert graph.test_mask.sum() == 99, "33 of every class of 167, 167 and 166"
    assert found[0] == found[1]


def test_the_index_of_pandas_is_no_feature() -> None:
    vertices = frame(x=[1, 2, 3], y=[4, 5, 6]).iloc[[2, 0, 1]]
    assert Graph.from_tables(PAIRS, vertices).feature_names == ("x", "y")


def test_the_index_that_pandas_writes_to_csv_is_no_feature() -> None:
    frame(x=[4, 5, 6]).to_csv("v.csv")
    assert Graph.from_tables(PAIRS, "v.csv").feature_names == ("x",)
    assert Graph.from_tables(PAIRS, "v.csv", features="*").feature_names == ("x",)
    read_back = pd.read_csv("v.csv")
    assert "Unnamed: 0" in read_back
    assert Graph.from_tables(PAIRS, read_back).feature_names == ("x",)
    assert Graph.from_tables(PAIRS, read_back, features="*").feature_names == ("x",)


def test_categories_of_polars_and_texts_of_pandas_are_the_same() -> None:
    cities = ["Rome", "Bern", "Rome"]
    for kind in (pl.Categorical, pl.Enum(["Rome", "Bern", "Oslo"]), pl.String):
        vertices = pl.DataFrame({"id": ["a", "b", "c"], "city": pl.Series(cities, dtype=kind)})
        ends = pl.Categorical if kind == pl.Categorical else pl.String
        edges = pl.DataFrame({"s": pl.Series(["a"], dtype=ends), "t": pl.Series(["b"], dtype=ends)})
        graph = Graph.from_tables(edges, vertices)
        assert graph.feature_names == ("city=Bern", "city=Rome"), "categories that do not occur have no column"
        assert graph.features[:, 1].tolist() == [1, 0, 1]


def test_ids_that_are_categories_are_texts() -> None:
    vertices = frame(x=[1, 2, 3])
    vertices["id"] = vertices["id"].astype("category")
    assert list(Graph.from_tables(PAIRS, vertices).ids) == ["a", "b", "c"]


def test_quotes_keep_commas_and_lines_together() -> None:
    graph = from_text('id,t\n"a, b","x\ny"\nc,z\n', 's,t\n"a, b",c\n', undirected=False)
    assert edges_by_id(graph) == {("a, b", "c")}
    assert graph.feature_names == ("t=x\ny", "t=z")


AGE = {"features": "age"}
BAD_CSV: dict[str, tuple[str, str, dict[str, Any], str]] = {
    # vertices, edges, options, and the error
    "empty file": ("", EDGES, {}, r"v\.csv begins with an empty line"),
    "header only": ("id,x\n", EDGES, {}, r"v\.csv has no rows"),
    "no header": ("1,2\n3,4\n", EDGES, {}, r"v\.csv: its first line holds numbers \(1, 2\)"),
    "two columns of a name": ("id,x,x\na,1,2\n", EDGES, {}, r"v\.csv has 2 columns called 'x'"),
    "short row": (
        "id,x\nann,1\nbob\n",
        EDGES,
        {},
        r"v\.csv, row 1 \(counted from 0\), has 1 values instead of 2: 'bob'",
    ),
    "long row": ("id,x\nann,1,2\n", EDGES, {}, r"v\.csv, row 0 .* has 3 values instead of 2"),
    "open quote": ('id,x\nann,1\nbob,"2\ncid,3\n', EDGES, {}, r"v\.csv, row 1 .* a quote is not closed"),
    "not UTF-8 feature": ("id,x\nann,a\nbob,\xff\n", EDGES, {}, r"v\.csv, row 1 .* column 'x' is not UTF-8: b'\\xff'"),
    "not UTF-8 id": ("id,x\n\xff,1\n", EDGES, {}, r"v\.csv, row 0 .* column 'id' is not UTF-8"),
    "not UTF-8 label": ("id,y\nann,\xff\n", EDGES, {"label": "y"}, r"v\.csv, row 0 .* column 'y' is not UTF-8"),
    "not UTF-8 header": ("id,\xff\nann,1\n", EDGES, {}, r"v\.csv: the names of its columns are not UTF-8"),
    "UTF-16": ("\xff\xfei\0d\0", EDGES, {}, r"v\.csv is UTF-16"),
    "binary": ("i\0d,x\nann,1\n", EDGES, {}, r"v\.csv is not a CSV file"),
    "missing id": ("id,x\nann,1\n,2\n", EDGES, {}, r"v\.csv, row 1 .* column 'id' is missing"),
    "repeated id": ("id,x\nann,1\nbob,1\nann,2\n", EDGES, {}, r"names 'ann' twice, again at v\.csv, row 2 .* 'id'"),
    "unknown id column": ("id,x\nann,1\n", EDGES, {"id": "key"}, r"v\.csv: .*column 'key'"),
    "unknown label column": ("id,kind\nann,1\n", EDGES, {"label": "kinds"}, r"Did you mean 'kind'"),
    "unknown feature": ("id,x\nann,1\n", EDGES, {"features": ["y*"]}, r"v\.csv: .*column 'y\*'"),
    "unknown split column": ("id,y,x\nann,1,2\n", EDGES, {"label": "y", "split": "part"}, r"v\.csv: .*column 'part'"),
    "unknown fill column": ("id,x\nann,1\n", EDGES, {"fill": {"z": 1}}, r"v\.csv: .*column 'z'"),
    "label among features": (
        "id,y\nann,1\n",
        EDGES,
        {"label": "y", "features": "y"},
        r"column 'y' of v\.csv, which holds",
    ),
    "missing number": ("id,x\nann,1\nbob,\n", EDGES, {}, r"v\.csv, row 1 .* column 'x' is missing: .* by fill="),
    "NaN": ("id,x\nann,1\nbob,NaN\n", EDGES, {}, r"v\.csv, row 1 .* column 'x' is missing"),
    "infinite": ("id,x\nann,1\nbob,inf\n", EDGES, {}, r"v\.csv, row 1 .* column 'x' holds inf"),
    "too large": ("id,x\nann,1\nbob,1e39\n", EDGES, {}, r"v\.csv, row 1 .* column 'x' holds 1e\+39"),
    "mixed numbers": ("id,x\nann,1\nbob,two\n", EDGES, {}, r"v\.csv, row 1 .* column 'x' holds 'two', but .* numbers"),
    "mixed booleans": ("id,x\nann,true\nbob,7\n", EDGES, {}, r"v\.csv, row 1 .* column 'x' holds '7', but .* true or"),
    "missing category": ("id,c\nann,a\nbob,\n", EDGES, {}, r"v\.csv, row 1 .* column 'c' is missing: .*category"),
    "category filled by a number": ("id,c\nann,a\nbob,\n", EDGES, {"fill": 0}, r"column 'c' is missing: .*category"),
    "number filled by a text": ("id,x\nann,1\nbob,\n", EDGES, {"fill": {"x": "y"}}, r"fill='y' for column 'x'"),
    "nothing to average": ("id,x\nann,\nbob,\n", EDGES, {"fill": "mean"}, r"v\.csv has no value in column 'x'"),
    "no labels": ("id,y,x\nann,,1\n", EDGES, {"label": "y"}, r"v\.csv has no value in column 'y'"),
    "fill is no word": (VERTICES, EDGES, {"fill": "median"}, r"fill='median'"),
    "wrong split value": (
        "id,y,part,x\nann,1,train,1\nbob,0,trian,1\n",
        EDGES,
        {"label": "y", "split": "part"},
        r"v\.csv, row 1 .* column 'part' holds 'trian'",
    ),
    "split without labels": (VERTICES, EDGES, {"split": "part", "features": "age"}, r"split is given without label"),
    "split of another name": (VERTICES, EDGES, {"label": "kind", "split": {"dev": 0.1}}, r"'dev'"),
    "too large shares": (
        VERTICES,
        EDGES,
        {"label": "kind", "split": {"train": 0.7, "val": 0.5}},
        r"at most 1 together",
    ),
    "shares and lists": (
        VERTICES,
        EDGES,
        {"label": "kind", "split": {"train": 0.7, "val": ["ann"]}},
        r"for all splits",
    ),
    "split of an unknown id": (
        VERTICES,
        EDGES,
        {"label": "kind", "split": {"train": ["ann", "eve"]}},
        r"names 'eve' \(entry 1\)",
    ),
    "split of a wrong position": (VERTICES, EDGES, {"label": "kind", "split": {"train": [7]}}, r"names 7 \(entry 0\)"),
    "mask of a wrong length": (
        VERTICES,
        EDGES,
        {"label": "kind", "split": {"train": [True]}},
        r"shape \[1\], but v\.csv has 4",
    ),
    "split of numbers with fractions": (
        VERTICES,
        EDGES,
        {"label": "kind", "split": {"train": np.array([0.5])}},
        r"split\['train'\] is float64",
    ),
    "unlabelled vertex to train on": (VERTICES, EDGES, {"label": "kind", "split": {"train": ["bob"]}}, r"train_mask"),
    "unknown end": (
        VERTICES,
        "s,t\nann,bob\nann,eve\n",
        AGE,
        r"\(e\.csv, line 3\) has the end 'eve'.*drop_unknown=True",
    ),
    "unknown end above": (VERTICES, "ann,eve\nann,bob\n", AGE, r"\(e\.csv, line 1\) has the end 'eve'"),
    "empty end": (VERTICES, "s,t\nann,bob\nann,\n", AGE, r"e\.csv, line 3: 'ann,' is not an edge"),
    "bad weight": (VERTICES, "s,t,w\nann,bob,1\nann,bob,x\n", AGE, r"e\.csv, line 3: 'ann,bob,x' is not an edge"),
    "unknown column of edges": (
        VERTICES,
        EDGES,
        {"source": "src", "target": "to", **AGE},
        r"e\.csv has no column 'src'",
    ),
    "many columns of edges": (VERTICES, "a,b,c,d\n1,2,3,4\n", AGE, r"e\.csv has 4 columns"),
    "no edges": (VERTICES, "s,t\n", AGE, r"e\.csv, line 1 is a header, .* and no edge follows"),
    "number beyond rows": ("x\n1\n2\n", "s,t\n0,1\n1,2\n", {}, r"names vertex 2, but v\.csv has 2 rows"),
    "names of rows without ids": ("x\n1\n2\n", "s,t\na,b\n", {}, r"e\.csv, line 1: 's,t' is not an edge"),
    "texts among numbers": ("id,x\n1,1\n2,1\n", "s,t\n1,2\n1,b\n", {}, r"e\.csv, line 3"),
    "large text": ("id,x\n1,1\n" + "q" * 9 + ",1\n", "s,t\n1,2\n", {}, r"\(e\.csv, line 2\) has the end '2'"),
    "unknown option": (VERTICES, EDGES, {"labels": "kind"}, r"'labels'.*Did you mean 'label'"),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_a_bad_csv_file_is_refused_in_a_sentence_with_file_row_and_column(case: str) -> None:
    vertices, edges, options, message = BAD_CSV[case]
    Path("v.csv").write_bytes(vertices.encode("latin-1"))
    Path("e.csv").write_text(edges)
    with pytest.raises(DorylusError, match=message) as error:
        Graph.from_tables("e.csv", "v.csv", **options)
    assert "\n" not in str(error.value)


DATES = pd.to_datetime(["2020-01-01"] * 3)
BAD_TABLES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "dates": (frame(x=DATES), {}, r"vertices: column 'x' holds timestamp"),
    "structures": (pa.table({"id": ["a", "b", "c"], "x": [{"k": 1}] * 3}), {}, r"column 'x' holds struct"),
    "lists of texts": (pa.table({"id": ["a", "b", "c"], "x": [["k"]] * 3}), {}, r"column 'x' holds list<"),
    "lists of other lengths": (frame(x=[[1, 2], [1], [2, 3]]), {}, r"vertices, row 1 .* 'x' holds a list of 1, but"),
    "empty lists": (
        pa.table({"id": ["a", "b", "c"], "x": pa.array([[]] * 3, pa.list_(pa.float32()))}),
        {},
        r"vertices, row 0 .* column 'x' holds an empty list",
    ),
    "list as a label": (frame(x=1, y=[["k"]] * 3), {"label": "y"}, r"vertices: column 'y' holds list<.*are texts or"),
    "structure as a split": (frame(y="k", s=[{"k": 1}] * 3), {"label": "y", "split": "s"}, r"column 's' holds struct<"),
    "list as an id": (
        pd.DataFrame({"id": [["a"], ["b"], ["c"]]}),
        {"id": "id"},
        r"column 'id' holds list<.* but ids are",
    ),
    "fractions in the column id": (pd.DataFrame({"id": [0.5, 1, 2]}), {}, r"column 'id' holds double, but ids are"),
    "filled with NaN": (frame(x=[1, None, 2]), {"fill": np.nan}, r"fill=nan for column 'x': features are finite"),
    "filled beyond 32 bits": (
        frame(x=[1, None, 2]),
        {"fill": {"x": 1e39}},
        r"fill=1e\+39 for column 'x': features are",
    ),
    "negative seed": (
        frame(y="k"),
        {"label": "y", "split": {"train": 0.5}, "seed": -1},
        r"seed=-1: the seed of a split",
    ),
    "seed that is a text": (frame(y="k"), {"seed": "x"}, r"seed='x': the seed of a split is a whole number"),
    "unknown option of edges": (frame(x=1), {"drop_unknwon": True}, r"Did you mean 'drop_unknown'"),
    "missing list": (frame(x=[[1, 2], None, [2, 3]]), {}, r"vertices, row 1 .* column 'x' is missing"),
    "missing value in a list": (frame(x=[[1.0, 2], [1, np.nan], [2, 3]]), {}, r"vertices, row 1 .* 'x' is missing"),
    "missing number": (frame(x=[1, None, 2]), {}, r"vertices, row 1 .* column 'x' is missing"),
    "infinite": (frame(x=[1, np.inf, 2]), {}, r"vertices, row 1 .* column 'x' holds inf"),
    "missing category": (frame(x=["k", None, "k"]), {}, r"row 1 .* 'x' is missing: .* as in fill={'x': 'none'}"),
    "only missing": (frame(x=[None] * 3), {}, r"vertices has no value in column 'x'"),
    "missing id": (pd.DataFrame({"id": ["a", None, "c"], "x": 1}), {}, r"vertices, row 1 .* column 'id' is missing"),
    "repeated id": (pd.DataFrame({"id": ["a", "b", "a"], "x": 1}), {}, r"names 'a' twice, again at vertices, row 2"),
    "fractions as ids": (pd.DataFrame({"id": [0.5, 1, 2]}), {"id": "id"}, r"column 'id' holds double, but ids are"),
    "fractions as labels": (frame(y=[0.5, 1, 2]), {"label": "y"}, r"vertices, row 0 .* column 'y' holds 0\.5: classes"),
    "numbers as ids of texts": (pd.DataFrame({"id": [1, 2, 3], "x": 1}), {}, r"\(edges, row 0\) has the end 'a'"),
    "no rows": (frame(x=[1, 2, 3]).iloc[:0], {}, r"vertices has no rows"),
    "an unknown kind": ({"id": ["a"]}, {}, r"vertices is given as dict: give CSV or Parquet files, or a table"),
    "a number": (7, {}, r"vertices is given as int"),
    "no file": ("none.parquet", {}, r"there is no file none\.parquet"),
    "another suffix": ("e.json", {}, r"e\.json is no table"),
    "not Parquet": ("text.parquet", {}, r"cannot read text\.parquet"),
    "not gzip": ("text.csv.gz", {}, r"cannot read text\.csv\.gz"),
    "too many categories": (
        pd.DataFrame({"id": range(2000), "x": [f"t{k}" for k in range(2000)]}),
        {},
        r"vertices has more than 1,024 different texts in column 'x'",
    ),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_bad_table_is_refused_in_a_sentence_with_row_and_column(case: str) -> None:
    vertices, options, message = BAD_TABLES[case]
    for name in ("e.json", "text.parquet", "text.csv.gz"):
        Path(name).write_text("plain text")
    with pytest.raises(DorylusError, match=message) as error:
        Graph.from_tables(PAIRS, vertices, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("case", ["short row", "mixed numbers", "repeated id", "unknown end", "wrong split value"])
def test_a_refused_ingest_leaves_nothing(case: str) -> None:
    vertices, edges, options, message = BAD_CSV[case]
    Path("v.csv").write_text(vertices)
    Path("e.csv").write_text(edges)
    before = sorted(Path().iterdir())
    with pytest.raises(DorylusError, match=message):
        Graph.ingest("e.csv", "store", vertices="v.csv", id="id", **options)
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "kind"}, r"label='kind' names columns of a table .* vertices="),
        ({"label": "kind", "vertices": "v.csv", "labels": [0]}, r"labels=\[0\], but vertices are a table: use label"),
        ({"label": "kind", "vertices": "v.csv", "train": [0]}, r"train=\[0\], but vertices are a table: use split"),
    ],
)
def test_settings_of_a_table_and_of_rows_do_not_mix(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Graph.ingest("e.csv", "store", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"split": (0.6, 0.2, 0.2)},
            r"split=\(0\.6, 0\.2, 0\.2\): a split is a column .* {'train': 0\.6, 'val': 0\.2}",
        ),
        ({"split": 0.8}, r"split=0\.8: a split is a column of vertices"),
        ({"features": [1, 2]}, r"features=\[1, 2\]: columns of vertices are given by name"),
        ({"features": 1}, r"features=1: columns of vertices are given by name"),
        ({"categories": [1]}, r"categories=\[1\]: columns of vertices are given by name"),
    ],
)
def test_settings_of_another_kind_are_refused_with_the_cure(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Graph.from_tables("e.csv", "v.csv", label="kind", **options)


@pytest.mark.parametrize(
    ("memory", "message"), [("90MiB", r"give at least \d+ MiB"), ("2GiB", r"store exists already")]
)
def test_what_cannot_succeed_is_refused_before_a_table_is_read(
    monkeypatch: pytest.MonkeyPatch, memory: str, message: str
) -> None:
    if memory == "2GiB":
        Graph.ingest("e.csv", "store", vertices="v.csv", label="kind")
    monkeypatch.setattr(vertex_table, "open_table", None)
    with pytest.raises(DorylusError, match=message):
        Graph.ingest("e.csv", "store", vertices="v.csv", label="kind", memory=memory)


def test_a_table_that_changes_while_it_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    frame(x=[1, 2, 3]).to_parquet("v.parquet", index=False)
    reader = table_reader.open_table("v.parquet", "vertices")
    batches = reader.batches(["x"])
    next(batches)
    parquet.write_table(pa.table({"id": ["a"], "x": [1]}), "v.parquet")
    with pytest.raises(DataError, match=r"v\.parquet changed while it was read"):
        next(batches)


def test_a_name_of_an_edge_that_is_not_utf8_is_refused_as_such_where_vertices_are_known() -> None:
    Path("e.csv").write_bytes("s,t\nann,bob\nbob,\xfc\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"e\.csv, line 3: the name b'\\xfc' is not UTF-8"):
        Graph.from_tables("e.csv", pd.DataFrame({"id": ["ann", "bob"], "x": 1}))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"train": ["ann", "ann"]}, r"split\['train'\] names 'ann' twice, again in entry 1: list"),
        ({"train": ["ann"], "val": ["bob", "ann"]}, r"vertex 0 is in train_mask and in val_mask"),
        ({"test": ["ann"], "train": [True, True]}, r"vertex 0 is in train_mask and in test_mask"),
    ],
)
def test_a_split_that_repeats_a_vertex_is_refused_in_memory_and_in_an_ingest(split: Any, message: str) -> None:
    Path("v.csv").write_text("id,x,y\nann,1,k\nbob,2,q\n")
    Path("e.csv").write_text("s,t\nann,bob\n")
    options = {"id": "id", "label": "y", "split": split}
    with pytest.raises(DorylusError, match=message):
        Graph.from_tables("e.csv", "v.csv", **options)
    with pytest.raises(DorylusError, match=message):
        Graph.ingest("e.csv", "store", vertices="v.csv", **options)
    assert not Path("store").exists()


def test_a_graph_of_tables_has_the_name_that_is_given() -> None:
    vertices = pd.DataFrame({"id": ["ann", "bob"], "x": 1, "y": "k"})
    split = {"train": ["ann"], "val": ["bob"]}
    graph = Graph.from_tables(
        pd.DataFrame({"s": ["ann"], "t": ["bob"]}), vertices, id="id", label="y", split=split, name="mine"
    )
    assert graph.name == "mine"
