"""Numbers for names, the names kept on disk; and which numbering is chosen."""

import os
from pathlib import Path

import hypothesis.strategies as st
import pytest
from edge_batches import Listed, batch_of
from hypothesis import given

import dorylus.ingest.scratch as scratch
from dorylus.errors import DataError
from dorylus.ingest.batches import Tokens
from dorylus.ingest.numbering import DenseIds, MappedNames, MappedNumbers, make_numbering
from dorylus.ingest.scratch import NameScratch


def names_of(numbering: MappedNames) -> list[str]:
    return [name for block in numbering.original() for name in block.to_list()]


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@given(st.lists(st.tuples(words, words), max_size=40), st.integers(1, 15))
def test_names_do_not_depend_on_how_the_input_is_cut(edges: list[tuple[str, str]], size: int) -> None:
    numbering = MappedNames()
    parts = [edges[begin : begin + size] for begin in range(0, len(edges), size)]
    numbers = [tuple(pair) for part in parts for pair in zip(*numbering.ends(batch_of(part)), strict=True)]
    order = list(dict.fromkeys(end for edge in edges for end in edge))
    assert numbering.num_vertices == len(order)
    assert names_of(numbering) == order
    assert [(order[a], order[b]) for a, b in numbers] == edges
    numbering.close()


def test_listed_names_come_first_and_a_fixed_list_refuses_others() -> None:
    open_list = MappedNames(vertices=Listed(["c", "a"], ["b"]))
    assert open_list.ends(batch_of([("a", "z")]))[1].tolist() == [3]
    assert names_of(open_list) == ["c", "a", "b", "z"]
    fixed = MappedNames(vertices=Listed(["c", "a"]), fixed=True)
    assert fixed.ends(batch_of([("a", "c")]))[0].tolist() == [1]
    with pytest.raises(DataError, match=r"edge 'z' -> 'c' \(number 0\) has the end 'z', which is not among the 2 "):
        fixed.ends(batch_of([("z", "c")]))
    with pytest.raises(DataError, match="names 'a' twice, again at number 2"):
        MappedNames(vertices=Listed(["a", "b", "a"]))


def test_a_table_of_names_keeps_its_memory() -> None:
    numbering = MappedNames(memory_bytes=MappedNames.bytes_for(1000))
    with pytest.raises(DataError, match=r"but [\d,]+ bytes may be used for them"):
        numbering.ends(batch_of([(f"a{i}", f"b{i}") for i in range(100_000)]))


def test_numbers_are_refused_where_names_are_required() -> None:
    with pytest.raises(DataError, match="ends of edges are numbers"):
        MappedNames().ends(batch_of([(0, 1)]))


@pytest.mark.parametrize(("block_names", "block_bytes"), [(1, 100), (3, 8), (1000, 5), (1000, 1000)])
def test_a_spool_gives_names_back_in_blocks(
    block_names: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scratch, "BLOCK_NAMES", block_names)
    monkeypatch.setattr(scratch, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(scratch, "SYNC_BYTES", 1)
    spool = NameScratch(tmp_path)
    names = ["a", "", "bcd", "a name of more than eight bytes", "é", "e"]
    spool.append(Tokens.of(names[:2]))
    assert [name for block in spool.blocks() for name in block.to_list()] == names[:2]
    spool.append(Tokens.of([]))
    spool.append(Tokens.of(names[2:]))
    assert len(spool) == len(names)
    blocks = list(spool.blocks())
    assert [name for block in blocks for name in block.to_list()] == names
    assert all(len(block) <= block_names and block.offsets[0] == 0 for block in blocks)
    assert all(len(block.bytes) <= block_bytes or len(block) == 1 for block in blocks)
    spool.close()


def test_a_spool_leaves_no_file_behind(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    spool = NameScratch(tmp_path)
    spool.append(Tokens.of(["x"] * 10))
    assert list(tmp_path.iterdir()) == []
    spool.close()
    spool.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_disk_without_room_is_the_systems_own_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    spool = NameScratch(tmp_path)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left") as caught:
        spool.append(Tokens.of(["x" * (1 << 20)]))
    assert caught.value.errno == 28


def test_tokens_are_a_list_of_names() -> None:
    tokens = Tokens.of(["a", "", "é"])
    assert len(tokens) == 3
    assert tokens[2] == "é"
    assert tokens.to_list() == ["a", "", "é"]


def test_the_numbering_follows_from_the_settings_and_the_input() -> None:
    assert isinstance(make_numbering(), DenseIds)
    assert make_numbering("dense", num_vertices=7).num_vertices == 7
    assert isinstance(make_numbering("map"), MappedNumbers)
    assert isinstance(make_numbering("auto", vertices=Listed([5])), MappedNumbers)
    assert isinstance(make_numbering("auto", strings=True), MappedNames)
    assert isinstance(make_numbering("map", strings=True), MappedNames)
    with pytest.raises(DataError, match="ids='dense' they are numbers already"):
        make_numbering("dense", vertices=Listed([5]))
