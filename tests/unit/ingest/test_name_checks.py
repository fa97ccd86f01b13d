"""Names that no store can hold are refused by the place that has them first, and the bytes."""

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyarrow import parquet

import dorylus.ingest.batches as batches
from dorylus.errors import DataError
from dorylus.graph import Graph
from dorylus.ingest.batches import Tokens, first_invalid_name, invalid_name_error


def tokens(names: list[bytes]) -> Tokens:
    offsets = np.cumsum([0, *map(len, names)])
    return Tokens(np.frombuffer(b"".join(names), np.uint8), offsets)


def is_text(name: bytes) -> bool:
    try:
        return "\0" not in name.decode()
    except UnicodeDecodeError:
        return False


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=4).map(str.encode), st.binary(max_size=3)), max_size=8),
    st.integers(1, 5),
)
def test_the_first_name_that_is_no_text_is_the_one_a_loop_finds(
    monkeypatch: pytest.MonkeyPatch, names: list[bytes], piece: int
) -> None:
    monkeypatch.setattr(batches, "PIECE_BYTES", piece)
    assert first_invalid_name(tokens(names)) == next(
        (place for place, name in enumerate(names) if not is_text(name)), None
    )


def test_two_names_that_break_a_character_between_them_are_refused() -> None:
    assert first_invalid_name(tokens([b"a", b"\xc3", b"\xa9"])) == 1


def test_a_long_name_is_printed_in_part() -> None:
    message = str(invalid_name_error(tokens([b"a", b"x" * 1000 + b"\0"]), 1, "a.txt, line 7"))
    assert message.startswith(f"a.txt, line 7: the name b'{'x' * 60}'... has a NUL byte. Names are texts: write")


@pytest.mark.parametrize("reorder", ["none", "degree"])
def test_an_ingest_of_names_that_are_no_text_leaves_nothing(reorder: str, tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_bytes(b"b c\n# d\nb d\nd a\xff\na\xff b\n")
    with pytest.raises(DataError, match=r"edges.txt, line 4: the name b'a\\xff' is not UTF-8"):
        Graph.ingest(tmp_path / "edges.txt", tmp_path / "store", reorder=reorder)
    assert [each.name for each in tmp_path.iterdir()] == ["edges.txt"]


def test_a_bad_name_in_a_list_of_vertices_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("a b\n")
    (tmp_path / "all.txt").write_bytes(b"a\nb\n\xe9\n")
    with pytest.raises(DataError, match=r"all.txt, line 3: the name b'\\xe9' is not UTF-8"):
        Graph.ingest(tmp_path / "edges.txt", tmp_path / "store", vertices=tmp_path / "all.txt")


def test_a_bad_name_in_a_table_is_reported_with_its_row(tmp_path: Path) -> None:
    ends = pa.array([b"a", b"b", b"\xe9"], pa.binary())
    parquet.write_table(pa.table({"source": ends, "destination": ends}), tmp_path / "edges.parquet")
    with pytest.raises(DataError, match=r"edges.parquet, row 2 \(counted from 0\): the name b'\\xe9' is not UTF-8"):
        Graph.ingest(tmp_path / "edges.parquet", tmp_path / "store")
