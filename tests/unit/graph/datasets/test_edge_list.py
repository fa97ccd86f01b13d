"""Text edge lists as graphs, and the first bad line by its number."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from dorylus.errors import DataError
from dorylus.graph import Graph, load


def written(text: str, folder: Path, name: str = "web.txt") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_an_edge_list_is_a_graph_called_as_its_file(tmp_path: Path) -> None:
    """The syntax of lines belongs to the reader, and is tested there."""
    graph = load(written("# a graph\n0 1\n1 2\n", tmp_path))
    assert graph.indptr.tolist() == [0, 1, 3, 4]
    assert graph.indices.tolist() == [1, 0, 2, 1]
    assert graph.name == "web"
    assert graph.edge_weight is None


def test_a_third_column_is_the_weight(tmp_path: Path) -> None:
    graph = load(written("0 1 0.5\n1 2 -3e1\n", tmp_path), directed=True)
    assert graph.directed
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [0.5, -30.0]
    assert graph.indices.tolist() == [0, 1]


def test_a_heading_is_skipped_and_so_are_lines_on_request(tmp_path: Path) -> None:
    assert load(written("source,target\n0,1\n", tmp_path, "web.csv")).num_edges == 2
    assert load(written("2 edges\n0 0\n0 1\n1 2\n", tmp_path), skip_lines=2).num_edges == 4
    with pytest.raises(DataError, match="line 4: '1'"):
        load(written("2 edges\n0 0\n0 1\n1\n", tmp_path), skip_lines=2)


def test_vertices_without_edges_are_counted_where_their_number_is_given(tmp_path: Path) -> None:
    assert load(written("0 1\n", tmp_path), num_vertices=9).num_vertices == 9


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "web.txt.gz", "wt") as file:
        file.write("0 1\n1 2\n")
    assert load(tmp_path / "web.txt.gz").num_edges == 4


def test_written_edges_are_read_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 500, (3000, 2))
    np.savetxt(tmp_path / "web.txt", ends, fmt="%d")
    expected = Graph.from_edges(ends[:, 0], ends[:, 1], 500)
    found = load(tmp_path / "web.txt", num_vertices=500)
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)


BAD = {
    "a word": ("0 1\n# fine\n1 two\n", r"line 3: '1 two' is not an edge.*ingest the file with ids='strings'"),
    "a missing end": ("0 1\n1\n", "line 2: '1' is not an edge"),
    "a column too many": ("0 1\n1 2 3\n", "line 2: '1 2 3'"),
    "a weight too few": ("0 1 2.5\n1 2\n", "line 2: '1 2'"),
    "four columns": ("0 1 2 3\n", r"has 4 columns.* ingest the file with, for example, columns=\(0, 1\)"),
    "a fraction for a vertex": ("0 1\n1.5 2\n", "line 2: '1.5 2'"),
    "a negative vertex": ("0 1\n1 2\n-4 2\n", r"line 3: '-4 2'.*ingest the file with ids='map'\."),
    "a weight that is a word": ("0 1 2\n1 2 heavy\n", "line 2: '1 2 heavy'"),
    "another separator": ("0 1\n1;2\n", "line 2: '1;2'"),
    "a weight that is no number": ("0 1 2\n1 2 nan\n", "line 2: '1 2 nan'.*finite"),
}


@pytest.mark.parametrize(("text", "sentence"), BAD.values(), ids=BAD.keys())
def test_the_first_bad_line_is_named(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        load(written(text, tmp_path))


def test_a_file_without_edges_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no edge"):
        load(written("# nothing\n\n", tmp_path))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match=r"photo\.jpg, line 1 holds a zero byte, so it is not text"):
        load(tmp_path / "photo.jpg")
