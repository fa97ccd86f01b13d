"""The place in the input of an edge that can only be checked after it was read: file and line, or file and row."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

import dorylus
from dorylus.errors import DataError, GraphError
from dorylus.ingest.readers.files import open_edges
from dorylus.ingest.readers.text import BLOCK_BYTES

EDGES = np.array([[0, 1], [1, 2], [2, 9], [2, 0]])
TABLE = pyarrow.table({"source": EDGES[:, 0], "destination": EDGES[:, 1]})
ROW = r"row 2 \(counted from 0\)"
FORMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "edges.npy": (lambda path: np.save(path, EDGES), ROW),
    "turned.npy": (lambda path: np.save(path, EDGES.T), ROW),
    "edges.npz": (lambda path: np.savez(path, source=EDGES[:, 0], destination=EDGES[:, 1]), ROW),
    "edges.i64": (lambda path: EDGES.tofile(path), ROW),
    "edges.parquet": (lambda path: pyarrow.parquet.write_table(TABLE, path, row_group_size=2), ROW),
    "edges.arrow": (lambda path: pyarrow.feather.write_feather(TABLE, path, chunksize=2), ROW),
    "edges.txt": (lambda path: path.write_text("0 1\n1 2\n2 9\n2 0\n"), "line 3"),
    "no-end.txt": (lambda path: path.write_text("0 1\n1 2\n2 9"), "line 3"),
    "snap.txt": (lambda path: path.write_text("# a\n# b\n0\t1\n\n1\t2\n# c\n2\t9\n2\t0\n"), "line 7"),
    "header.csv": (lambda path: path.write_text('source,destination\r\n0,1\r\n"1",2\r\n2,9 # c\r\n2,0\r\n'), "line 4"),
    "edges.txt.gz": (lambda path: path.write_bytes(gzip.compress(b"0 1\n1 2\n2 9\n2 0\n")), "line 3"),
}


@pytest.mark.parametrize("name", FORMS)
def test_an_end_that_does_not_exist_is_named_by_its_place(tmp_path: Path, name: str) -> None:
    write, place = FORMS[name]
    write(tmp_path / name)
    with pytest.raises(GraphError, match=rf"edge 2 -> 9 \({tmp_path / name}, {place}\) names vertex 9, but the graph"):
        dorylus.Graph.ingest(tmp_path / name, tmp_path / "store", num_vertices=3)
    assert not (tmp_path / "store").exists()


def test_lines_are_counted_in_each_of_many_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 1\n1 2\n")
    (tmp_path / "b.txt").write_text("# more\n2 0\n2 9\n")
    with pytest.raises(GraphError, match=rf"\({tmp_path / 'b.txt'}, line 3\)"):
        dorylus.Graph.ingest([tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "store", num_vertices=3)


def test_an_end_that_is_not_listed_is_named_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("ann bob\n# more\nbob cid\n")
    (tmp_path / "names.txt").write_text("ann\nbob\n")
    with pytest.raises(DataError, match=rf"edge 'bob' -> 'cid' \({tmp_path / 'edges.txt'}, line 3\) has the end 'cid'"):
        dorylus.Graph.ingest(tmp_path / "edges.txt", tmp_path / "store", vertices=tmp_path / "names.txt")


def test_every_edge_of_a_long_text_has_its_own_line(tmp_path: Path) -> None:
    """Lines of many kinds, over several blocks; each edge holds the number of its line."""
    line, count = 0, 0
    with open(tmp_path / "edges.txt", "w") as file:
        while file.tell() < 2.5 * BLOCK_BYTES:
            line += 1
            count += line % 3 != 0
            file.write("# no edge\n" if line % 3 == 0 else f"{line} {line + 1}{' ' * (line % 5000)}\n")
    seen, rng = 0, np.random.default_rng(0)
    for batch in open_edges(tmp_path / "edges.txt"):
        assert isinstance(batch.source, np.ndarray)
        for position in {0, len(batch.source) - 1, *rng.integers(0, len(batch.source), 5).tolist()}:
            assert batch.locate(position) == f"{tmp_path / 'edges.txt'}, line {batch.source[position]:,}"
        seen += len(batch.source)
    assert seen == count
