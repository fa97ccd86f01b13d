"""Which columns are taken for ends: by place, by name, and against what they are called."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from all_edges import edges_of
from pyarrow import feather, parquet

from dorylus.errors import DataError
from dorylus.ingest.readers.files import open_edges, open_vertices


def written(names: list[str], rows: list[tuple[Any, ...]], suffix: str, folder: Path) -> Path:
    path = folder / f"web{suffix}"
    if suffix == ".csv":
        path.write_text("\n".join(",".join(map(str, row)) for row in [tuple(names), *rows]) + "\n")
        return path
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=names)
    if suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, str(path))
    return path


columnar = pytest.mark.parametrize("suffix", [".parquet", ".feather"])
headed = pytest.mark.parametrize("suffix", [".parquet", ".feather", ".csv"])


@columnar
def test_two_columns_of_one_name_are_refused(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has 2 columns called 'a'\. Rename"):
        open_edges(written(["a", "a"], [(0, 1)], suffix, tmp_path))
    path = written(["a", "b", "c", "c"], [(0, 1, 2, 3)], suffix, tmp_path)
    assert edges_of(open_edges(path, columns="a,b")) == [(0, 1)]


@columnar
def test_an_index_of_pandas_is_no_weight(suffix: str, tmp_path: Path) -> None:
    path = written(["a", "b", "__index_level_0__"], [(0, 1, 7), (1, 2, 8)], suffix, tmp_path)
    assert edges_of(open_edges(path)) == [(0, 1), (1, 2)]
    assert edges_of(open_edges(path, columns=("a", "b", "__index_level_0__"))) == [(0, 1, 7.0), (1, 2, 8.0)]
    first = written(["__index_level_0__", "a", "b"], [(7, 0, 1)], suffix, tmp_path)
    assert edges_of(open_edges(first, columns=(0, 1))) == [(0, 1)]
    assert edges_of(open_vertices(first)) == [(0, 0)]


@headed
@pytest.mark.parametrize("columns", ["0,0", (1, 1, 0), ("a", "a"), (0, "a")])
def test_one_column_is_not_both_ends(suffix: str, columns: Any, tmp_path: Path) -> None:
    path = written(["a", "b"], [(0, 1)], suffix, tmp_path)
    with pytest.raises(DataError, match="for both ends, so that every edge would be a self loop"):
        open_edges(path, columns=columns)


def test_the_column_of_an_end_may_be_the_weight(tmp_path: Path) -> None:
    path = written(["a", "b"], [(3, 1)], ".parquet", tmp_path)
    assert edges_of(open_edges(path, columns=(0, 1, 0))) == [(3, 1, 3.0)]


@headed
@pytest.mark.parametrize("names", [["dst", "src"], ["To", "From"], ["target_id", "sourceId"]])
@pytest.mark.parametrize("rows", [[(0, 1), (1, 2)], [("x", "y"), ("y", "z")]], ids=["numbers", "names"])
def test_names_that_contradict_the_order_are_refused(
    suffix: str, names: list[str], rows: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    path = written(names, rows, suffix, tmp_path)
    with pytest.raises(DataError, match=rf"called '{names[0]}' and the second '{names[1]}', .* with columns=\(1, 0\) "):
        open_edges(path)
    header = {"header": True} if suffix == ".csv" else {}
    assert edges_of(open_edges(path, columns="0,1", **header)) == rows
    assert edges_of(open_edges(path, columns=f"{names[1]},{names[0]}")) == [row[::-1] for row in rows]
    assert edges_of(open_vertices(path, **header))[0] == (rows[0][0], rows[0][0])


@headed
@pytest.mark.parametrize("names", [["src", "dst"], ["to", "b"], ["a", "from"], ["target", "target2"]])
def test_names_that_do_not_contradict_the_order_are_taken_as_they_come(
    suffix: str, names: list[str], tmp_path: Path
) -> None:
    assert edges_of(open_edges(written(names, [(0, 1), (1, 2)], suffix, tmp_path))) == [(0, 1), (1, 2)]


def test_edges_between_such_names_are_no_heading_with_header_false(tmp_path: Path) -> None:
    path = written(["to", "from"], [("from", "of")], ".csv", tmp_path)
    assert edges_of(open_edges(path, header=False)) == [("to", "from"), ("from", "of")]


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_first_column_that_is_no_end_is_reported_with_the_option_that_selects_columns(
    suffix: str, tmp_path: Path
) -> None:
    path = written(["w", "to", "from"], [(0.5, 1, 2)], suffix, tmp_path)
    with pytest.raises(DataError, match=r"'w' holds double.* name those by columns=\."):
        open_edges(path)
    with pytest.raises(DataError, match=r"'w' holds double.*: convert the column\.$"):
        open_edges(path, columns=("w", "to"))


def test_the_first_version_of_feather_is_named(tmp_path: Path) -> None:
    (tmp_path / "old.feather").write_bytes(b"FEA1" + bytes(60))
    with pytest.raises(DataError, match="a Feather version 1 file"):
        open_edges(tmp_path / "old.feather")


@pytest.mark.parametrize("index", ["", "Unnamed: 0"])
@pytest.mark.parametrize("rows", [[(7, 1, 2), (8, 2, 3)], [(0, "ann", "bob"), (1, "bob", "cy")]])
@headed
def test_the_index_that_pandas_writes_is_not_an_end(
    rows: list[tuple[Any, ...]], index: str, suffix: str, tmp_path: Path
) -> None:
    path = written([index, "source", "target"], rows, suffix, tmp_path)
    read = open_edges(path)
    assert not read.weighted
    assert edges_of(read) == [row[1:] for row in rows]
    weighted = written([index, "from", "to", "w"], [(*row, 0.5) for row in rows], suffix, tmp_path)
    assert open_edges(weighted).weighted


@headed
def test_a_first_column_without_a_name_that_may_be_the_source_is_asked_for(suffix: str, tmp_path: Path) -> None:
    path = written(["", "target", "weight"], [(0, 1, 0.5), (1, 2, 0.5)], suffix, tmp_path)
    with pytest.raises(DataError, match=r"the first column has no name, .* with columns=\(0, 1\) if the first is"):
        open_edges(path)
    assert edges_of(open_edges(path, columns=(0, 1))) == [(0, 1), (1, 2)]


def test_a_missing_name_in_a_first_edge_makes_no_index(tmp_path: Path) -> None:
    path = tmp_path / "web.csv"
    path.write_text(",bob,.5\nbob,cy,.5\n")
    with pytest.raises(DataError, match="A name is missing"):
        list(open_edges(path))


@pytest.mark.parametrize("text", ["source;target\n0;1\n1;2\n", "0;1\n1;2\n", "0; 1\n1; 2\n"])
def test_semicolons_separate_columns_as_they_do_in_tables_of_vertices(text: str, tmp_path: Path) -> None:
    path = tmp_path / "web.csv"
    path.write_text(text)
    assert edges_of(open_edges(path)) == [(0, 1), (1, 2)]
