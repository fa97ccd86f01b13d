"""Names that no store can hold are refused by the vertex's number and the bytes."""

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from dorylus.errors import DataError
from dorylus.graph import Graph
from dorylus.graph.ingest import name_checks
from dorylus.graph.ingest.batches import Tokens
from dorylus.graph.ingest.name_checks import checked_names


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
    st.lists(st.lists(st.one_of(st.text(max_size=4).map(str.encode), st.binary(max_size=3)), max_size=5), max_size=4),
    st.integers(1, 5),
)
def test_the_first_name_that_is_no_text_is_the_one_a_loop_finds(
    monkeypatch: pytest.MonkeyPatch, blocks: list[list[bytes]], piece: int
) -> None:
    monkeypatch.setattr(name_checks, "PIECE_BYTES", piece)
    names = [name for block in blocks for name in block]
    bad = [place for place, name in enumerate(names) if not is_text(name)]
    given_blocks = [tokens(block) for block in blocks]
    if not bad:
        assert list(checked_names(given_blocks)) == given_blocks
        return
    with pytest.raises(DataError) as refused:
        list(checked_names(given_blocks))
    assert str(refused.value).startswith(f"the name of vertex {bad[0]}, {names[bad[0]]!r}, ")


def test_two_names_that_break_a_character_between_them_are_refused() -> None:
    with pytest.raises(DataError, match=r"vertex 1, b'\\xc3', is not UTF-8: .* write the file as UTF-8"):
        list(checked_names([tokens([b"a", b"\xc3", b"\xa9"])]))


def test_a_long_name_is_shown_in_part() -> None:
    with pytest.raises(DataError, match=r"vertex 0, b'x{60}'\.\.\., has a NUL byte"):
        list(checked_names([tokens([b"x" * 1000 + b"\0"])]))


@pytest.mark.parametrize("reorder", ["none", "degree"])
def test_an_ingest_of_names_that_are_no_text_leaves_nothing(reorder: str, tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_bytes(b"b c\nb d\na\xff b\n")
    with pytest.raises(DataError, match=r"the name of vertex 3, b'a\\xff', is not UTF-8"):
        Graph.ingest(tmp_path / "edges.txt", tmp_path / "store", reorder=reorder)
    assert [each.name for each in tmp_path.iterdir()] == ["edges.txt"]
