"""Which files are read, in which order and by which reader; and options that make no sense."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from all_edges import edges_of
from pyarrow import parquet

from dorylus.errors import DataError
from dorylus.graph.ingest.readers import edge_file, open_edges, open_vertices
from dorylus.graph.ingest.readers.edge_file import PageCache


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files, and marks that other programs leave."""
    for name, content in {"b.txt": "2 3\n", "a.csv": "0,1\n", "_SUCCESS": "", ".hidden.txt": "junk"}.items():
        (tmp_path / name).write_text(content)
    np.save(tmp_path / "c.npy", np.array([[4, 5]]))
    return tmp_path


def test_a_folder_is_read_in_the_order_of_names(folder: Path) -> None:
    source = open_edges(folder)
    assert edges_of(source) == [(0, 1), (2, 3), (4, 5)]
    assert source.total_bytes == sum((folder / name).stat().st_size for name in ("a.csv", "b.txt", "c.npy"))


def test_files_are_named_one_by_one_or_by_a_pattern(folder: Path) -> None:
    assert edges_of(open_edges(str(folder / "b.txt"))) == [(2, 3)]
    assert edges_of(open_edges([folder / "b.txt", folder / "a.csv"])) == [(2, 3), (0, 1)]
    assert edges_of(open_edges(str(folder / "[ab].*"))) == [(0, 1), (2, 3)]
    assert edges_of(open_edges([str(folder / "c*"), str(folder / "a*")])) == [(4, 5), (0, 1)]


def test_a_file_whose_name_looks_like_a_pattern_is_read(folder: Path) -> None:
    (folder / "b.txt").rename(folder / "part[0].txt")
    assert edges_of(open_edges(folder / "part[0].txt")) == [(2, 3)]


def test_a_format_may_be_told(folder: Path) -> None:
    (folder / "a.csv").rename(folder / "a.log")
    assert edges_of(open_edges(folder / "a.log", format="text")) == [(0, 1)]


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no such file": ("absent.txt", {}, "there is no file .*absent.txt"),
    "no such pattern": ("absent*.txt", {}, "no file is called like .*absent"),
    "an unknown suffix": ("a.log", {}, r"unknown suffix '.log'. The known ones are .txt, .csv.*\.i64.*\.gz.*format="),
    "no suffix": ("_SUCCESS2", {}, "has no suffix"),
    "an unknown format": ("b.txt", {"format": "parquett"}, "unknown format 'parquett'.*Did you mean 'parquet'"),
    "unknown ids": ("b.txt", {"ids": "dens"}, "unknown kind of ids 'dens'.*Did you mean 'dense'"),
    "one column": ("b.txt", {"columns": (0,)}, r"columns=\(0,\), but an edge is made of two columns"),
    "a negative column": ("b.txt", {"columns": (0, -1)}, "an edge is made of two columns"),
    "a long delimiter": ("b.txt", {"delimiter": "::"}, "delimiter='::'"),
    "a mark beyond ASCII": ("b.txt", {"comments": "§"}, "comments='§'"),
    "a digit for a delimiter": ("b.txt", {"delimiter": "1"}, "delimiter='1'"),
    "a type of fractions": ("a.bin", {"dtype": "f4"}, "dtype='f4', but raw binary edges are pairs of whole numbers"),
    "a type that is none": ("a.bin", {"dtype": "int33"}, "dtype='int33' is no type"),
    "an empty file": ("empty.txt", {}, "empty.txt is empty"),
}


@pytest.mark.parametrize(("name", "options", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_read_is_refused(name: str, options: dict[str, Any], sentence: str, folder: Path) -> None:
    for each in ("a.log", "_SUCCESS2", "a.bin"):
        (folder / each).write_text("0 1\n")
    (folder / "empty.txt").touch()
    with pytest.raises(DataError, match=sentence):
        open_edges(folder / name, **options)


def test_no_file_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file of edges is given"):
        open_edges([])
    with pytest.raises(DataError, match="holds no file"):
        open_edges(tmp_path)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "edges.txt")
    with pytest.raises(DataError, match=r"edges\.txt is a pipe or a device, .* Write them to a file"):
        open_edges(tmp_path / "edges.txt")


def test_a_delimiter_that_cuts_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0 1\n")
    with pytest.raises(DataError, match=r"Fields are cut by ';', as asked for by delimiter="):
        open_edges(tmp_path / "edges.txt", delimiter=";")


def test_a_file_that_may_not_be_read_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", closed)
    with pytest.raises(DataError, match=r"b.txt: Permission denied. Check the path"):
        open_edges(folder / "b.txt")


def test_all_files_are_looked_at_before_one_is_read(folder: Path) -> None:
    (folder / "z.txt").write_text("# nothing\n")
    with pytest.raises(DataError, match=r"z.txt holds no edge"):
        open_edges(folder)


def test_files_must_agree_about_names_and_weights(folder: Path) -> None:
    (folder / "z.txt").write_text("alice bob\n")
    with pytest.raises(DataError, match=r"a.csv holds numbers and .*z.txt holds names.*ids='strings'"):
        open_edges(folder)
    (folder / "z.txt").write_text("0 1 0.5\n")
    with pytest.raises(DataError, match=r"a.csv has no weights and .*z.txt has weights"):
        open_edges(folder)


def test_a_list_of_vertices_has_an_id_a_line(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("New York\nRome\n")
    assert edges_of(open_vertices(tmp_path / "v.txt")) == [("New York", "New York"), ("Rome", "Rome")]
    (tmp_path / "v.csv").write_text("id,age\n7,30\n-9,40\n")
    assert edges_of(open_vertices(tmp_path / "v.csv")) == [(7, 7), (-9, -9)]


def test_what_was_read_is_dropped_from_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, begin, length, advice: asked.append((begin, length)))
    monkeypatch.setattr(edge_file, "DROP_BYTES", 100)
    (tmp_path / "a.txt").write_text("x")
    with PageCache(tmp_path / "a.txt") as cache:
        for position in (50, 100, 150, 210):
            cache.behind(position)
    assert asked == [(0, 100), (0, 210), (0, 0)]


def test_how_many_edges_there_are_is_known_where_files_tell(tmp_path: Path) -> None:
    pairs = np.arange(10, dtype="<i4").reshape(5, 2)
    pairs.tofile(tmp_path / "a.i32")
    np.save(tmp_path / "b.npy", pairs)
    parquet.write_table(pa.table({"source": pairs[:, 0], "destination": pairs[:, 1]}), tmp_path / "c.parquet")
    paths = [tmp_path / name for name in ("a.i32", "b.npy", "c.parquet")]
    assert [open_edges(path).num_edges for path in paths] == [5, 5, 5]
    assert open_edges(paths).num_edges == 15
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(b"0 1\n1 2\n"))
    assert open_edges([*paths, tmp_path / "d.txt.gz"]).num_edges is None, "a packed file does not tell"
