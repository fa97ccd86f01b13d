"""Which files are read, in which order and by which reader; and options that make no sense."""

import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from all_edges import edges_of
from pyarrow import parquet

import dorylus.ingest.readers.input_file as input_file
from dorylus.errors import DataError
from dorylus.ingest.readers.files import open_edges, open_vertices
from dorylus.ingest.readers.input_file import PageCache


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


def test_a_format_may_be_given(folder: Path) -> None:
    (folder / "a.csv").rename(folder / "a.log")
    assert edges_of(open_edges(folder / "a.log", format="text")) == [(0, 1)]


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no such file": ("absent.txt", {}, "there is no file .*absent.txt"),
    "no such pattern": ("absent*.txt", {}, "no file is called like .*absent"),
    "an unknown suffix": ("a.log", {}, r"unknown suffix '.log'. The known ones are .txt, .csv.*\.i64.*\.gz.*format="),
    "no suffix": ("_SUCCESS2", {}, "has no suffix"),
    "an unknown format": ("b.txt", {"format": "parquett"}, "format='parquett' is unknown.*Did you mean 'parquet'"),
    "unknown ids": ("b.txt", {"ids": "dens"}, "ids='dens' is unknown.*Did you mean 'dense'"),
    "one column": ("b.txt", {"columns": (0,)}, r"columns=\(0,\), but an edge is made of two columns"),
    "a negative column": ("b.txt", {"columns": (0, -1)}, "an edge is made of two columns"),
    "a long delimiter": ("b.txt", {"delimiter": "::"}, "delimiter='::'"),
    "a mark beyond ASCII": ("b.txt", {"comments": "§"}, "comments='§'"),
    "a digit for a delimiter": ("b.txt", {"delimiter": "1"}, "delimiter='1'"),
    "a type of fractions": ("a.bin", {"dtype": "f4"}, "dtype='f4', but raw binary edges are pairs of whole numbers"),
    "a type that is none": ("a.bin", {"dtype": "int33"}, "dtype='int33' is not a type"),
    "an empty file": ("empty.txt", {}, "empty.txt is empty"),
}


@pytest.mark.parametrize(("name", "options", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_unreadable_input_is_refused(name: str, options: dict[str, Any], sentence: str, folder: Path) -> None:
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
    with pytest.raises(DataError, match=r"edges\.txt is a pipe, a socket or a device, .* Write them to a file"):
        open_edges(tmp_path / "edges.txt")


def test_a_delimiter_that_cuts_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0 1\n")
    with pytest.raises(DataError, match=r"Fields are separated by the character of delimiter=';'"):
        open_edges(tmp_path / "edges.txt", delimiter=";")


def test_a_file_that_may_not_be_read_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", closed)
    with pytest.raises(DataError, match=r"b.txt: Permission denied. Check the path"):
        open_edges(folder / "b.txt")


def test_all_files_are_looked_at_before_one_is_read(folder: Path) -> None:
    (folder / "z.npy").write_text("nothing that is an array")
    with pytest.raises(DataError, match=r"z.npy"):
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


def test_pages_that_were_read_are_dropped_from_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advised: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, begin, length, advice: advised.append((begin, length)))
    monkeypatch.setattr(input_file, "DROP_BYTES", 100)
    (tmp_path / "a.txt").write_text("x")
    with PageCache(tmp_path / "a.txt") as cache:
        for position in (50, 100, 150, 210):
            cache.behind(position)
    assert advised == [(0, 100), (0, 210), (0, 0)]


def test_the_number_of_edges_is_known_where_files_contain_it(tmp_path: Path) -> None:
    pairs = np.arange(10, dtype="<i4").reshape(5, 2)
    pairs.tofile(tmp_path / "a.i32")
    np.save(tmp_path / "b.npy", pairs)
    parquet.write_table(pa.table({"source": pairs[:, 0], "destination": pairs[:, 1]}), tmp_path / "c.parquet")
    paths = [tmp_path / name for name in ("a.i32", "b.npy", "c.parquet")]
    assert [open_edges(path).num_edges for path in paths] == [5, 5, 5]
    assert open_edges(paths).num_edges == 15
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(b"0 1\n1 2\n"))
    assert open_edges([*paths, tmp_path / "d.txt.gz"]).num_edges is None, "a packed file does not contain the number"


def write_edge(path: Path, source: int) -> Path:
    """A file with the one edge source -> source + 1, in folders that are created for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{source} {source + 1}\n")
    return path


def test_subfolders_are_read_in_the_order_of_their_relative_paths(tmp_path: Path) -> None:
    """As Spark and Hive lay out partitions: files of one name in many folders."""
    for source, name in enumerate(("b.txt", "day=1/part-0.txt", "day=1/part-1.txt", "day=2/part-0.txt", "e/f/g.txt")):
        write_edge(tmp_path / name, source)
    source = open_edges(tmp_path)
    assert edges_of(source) == [(edge, edge + 1) for edge in range(5)]
    assert (source.num_files, source.left_out) == (5, [])


def test_markers_and_temporary_files_of_other_programs_are_not_read(tmp_path: Path) -> None:
    write_edge(tmp_path / "_day=1" / "part-0.txt", 0)  # a column may be called _day
    for name in ("_SUCCESS", ".part-0.txt.crc", "_temporary/0/part-1.txt", ".git/a.txt", "part-2.txt._COPYING_"):
        write_edge(tmp_path / name, 7)
    source = open_edges(tmp_path)
    assert edges_of(source) == [(0, 1)]
    assert source.num_files == 1


def test_a_pattern_names_files_and_folders(tmp_path: Path) -> None:
    for source, name in enumerate(("day=1/a.txt", "day=2/a.txt", "day=2/b.txt")):
        write_edge(tmp_path / name, source)
    (tmp_path / "_SUCCESS").touch()
    assert edges_of(open_edges(str(tmp_path / "*"))) == [(0, 1), (1, 2), (2, 3)]
    assert edges_of(open_edges(str(tmp_path / "**" / "a.txt"))) == [(0, 1), (1, 2)]


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    write_edge(tmp_path / "far" / "a.txt", 0)
    write_edge(tmp_path / "farther.txt", 1)
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "linked").symlink_to(tmp_path / "far")
    (tmp_path / "near" / "mine.txt").symlink_to(tmp_path / "farther.txt")
    assert edges_of(open_edges(tmp_path / "near")) == [(0, 1), (1, 2)]


def test_entries_of_a_folder_that_are_no_files_are_refused_and_not_skipped(tmp_path: Path) -> None:
    write_edge(tmp_path / "a.txt", 0)
    (tmp_path / "b.txt").symlink_to(tmp_path / "gone.txt")
    with pytest.raises(DataError, match=r"b\.txt is a broken link\. Correct it, or remove it"):
        open_edges(tmp_path)
    (tmp_path / "b.txt").unlink()
    os.mkfifo(tmp_path / "b.txt")
    with pytest.raises(DataError, match=r"b\.txt is a pipe, a socket or a device"):
        open_edges(tmp_path)
    (tmp_path / "b.txt").unlink()
    (tmp_path / "round").symlink_to(tmp_path)
    with pytest.raises(DataError, match=r"round leads back to the folder .*: remove that link"):
        open_edges(tmp_path)


def test_a_file_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    """Its edges would count twice where repeats are kept."""
    file = write_edge(tmp_path / "a.txt", 0)
    with pytest.raises(DataError, match=r"a\.txt is named twice: .* Name it once"):
        open_edges([tmp_path, file])
    (tmp_path / "latest.txt").symlink_to(file)
    with pytest.raises(DataError, match=r"a\.txt and .*latest\.txt are one file: .* Leave one of the two out"):
        open_edges(tmp_path)


@pytest.mark.parametrize("mark", ["_delta_log", ".hoodie"])
def test_a_table_that_keeps_old_versions_is_refused(mark: str, tmp_path: Path) -> None:
    """Its folder holds files that are no longer part of the table."""
    write_edge(tmp_path / "table" / "a.txt", 0)
    (tmp_path / "table" / mark).mkdir()
    with pytest.raises(DataError, match=rf"table holds {mark}: .* older versions.*Export"):
        open_edges(tmp_path)


def empty_parts(folder: Path) -> None:
    """A file without an edge of every format that can be one."""
    for name, content in {"no-bytes.txt": "", "marks.txt": "# nothing\n", "heading.csv": "source,target\n"}.items():
        (folder / name).write_text(content)
    with gzip.open(folder / "packed.txt.gz", "wt") as file:
        file.write("")
    for name in ("no.parquet", "no.npy", "no.npz", "no.arrow", "no.i64"):
        (folder / name).touch()
    np.save(folder / "rows.npy", np.empty((0, 2), np.int64))
    np.savez(folder / "rows.npz", edges=np.empty((0, 2), np.int64))
    table = pa.table({"source": pa.array([], pa.int64()), "target": pa.array([], pa.int64())})
    parquet.write_table(table, folder / "rows.parquet")
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema):
        pass


def test_parts_of_a_folder_that_hold_no_edge_are_left_out_and_counted(tmp_path: Path) -> None:
    empty_parts(tmp_path)
    write_edge(tmp_path / "part.txt", 4)
    source = open_edges(tmp_path)
    assert edges_of(source) == [(4, 5)]
    assert source.num_files == 1
    assert sorted(path.name for path in source.left_out) == [
        "heading.csv", "marks.txt", "no-bytes.txt", "no.arrow", "no.i64", "no.npy", "no.npz", "no.parquet",
        "packed.txt.gz", "rows.arrow", "rows.npy", "rows.npz", "rows.parquet",
    ]  # fmt: skip


def test_input_that_holds_no_edge_at_all_is_refused(tmp_path: Path) -> None:
    empty_parts(tmp_path)
    with pytest.raises(DataError, match=r"none of the 13 files holds an edge\. .*heading\.csv holds a header"):
        open_edges(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(DataError, match=rf"{path.name} (is empty|holds (a header and )?no edge)"):
            open_edges(path)


@pytest.mark.parametrize("moment", ["before it is read", "while it is read"])
def test_a_file_that_changes_after_it_was_looked_at_is_refused(moment: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{edge} {edge + 1}\n" for edge in range(800_000)))
    source = iter(open_edges(tmp_path / "a.txt"))
    if moment == "while it is read":
        next(source)
    with open(tmp_path / "a.txt", "a") as file:
        file.write("7 8\n")
    with pytest.raises(DataError, match=r"a\.txt changed while it was read.* Ingest it again when .* complete"):
        list(source)


def test_a_file_that_is_gone_or_may_not_be_read_any_more_is_named(folder: Path) -> None:
    source = open_edges(folder)
    (folder / "b.txt").unlink()
    with pytest.raises(DataError, match=r"b\.txt changed while it was read: it is not there any more"):
        list(source)


@contextmanager
def as_a_user_without_privileges() -> Iterator[None]:
    """Root may read everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("name", ["day=1", "day=1/part-0.txt"])
def test_a_path_without_permission_is_named(name: str) -> None:
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)
        folder.chmod(0o755)  # the folders of pytest are closed to others
        write_edge(folder / "day=1" / "part-0.txt", 0)
        (folder / name).chmod(0)
        with as_a_user_without_privileges(), pytest.raises(DataError, match=rf"{name}: Permission denied\. Check"):
            open_edges(folder)
        (folder / name).chmod(0o755)
