"""Drafts: those of dead processes are removed, those of live ones are not, and an old store is never lost."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dorylus.errors import Terminated
from dorylus.graph import Graph
from dorylus.graph.atomic_folder import remove_leftovers, replacing_folder

HEX = "0123456789ab"


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def folder_with(path: Path, content: str) -> Path:
    path.mkdir()
    (path / "file").write_text(content)
    return path


def test_a_draft_takes_its_place_at_the_end(tmp_path: Path) -> None:
    with replacing_folder(tmp_path / "new" / "store") as draft:
        (draft / "file").write_text("whole")
        assert names(tmp_path / "new") == [draft.name]
    assert names(tmp_path / "new") == ["store"]
    assert (tmp_path / "new" / "store" / "file").read_text() == "whole"


def test_a_draft_is_gone_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), replacing_folder(tmp_path / "store"):
        raise KeyError
    assert names(tmp_path) == []


def test_a_signal_just_after_the_draft_exists_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_mkdir = Path.mkdir

    def mkdir(path: Path, *arguments: Any, **options: Any) -> None:
        real_mkdir(path, *arguments, **options)
        if path.name.startswith(".store."):
            raise Terminated(15)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(Terminated), replacing_folder(tmp_path / "store"):
        pytest.fail("the block is not entered")
    assert names(tmp_path) == []


def test_only_files_of_a_dead_process_are_removed(tmp_path: Path) -> None:
    folder_with(tmp_path / f".store.{HEX}", "half")
    others = ["store.txt", f".other.{HEX}", ".store.notours", ".store.0123456789abc"]
    for name in others:
        folder_with(tmp_path / name, "other")
    remove_leftovers(tmp_path / "store")
    assert names(tmp_path) == sorted(others)


def test_files_of_a_live_process_are_left_alone(tmp_path: Path) -> None:
    with replacing_folder(tmp_path / "store") as draft:
        (draft / "file").write_text("half")
        program = (
            "import pathlib, sys\n"
            "from dorylus.graph.atomic_folder import remove_leftovers\n"
            "remove_leftovers(pathlib.Path(sys.argv[1]))"
        )
        subprocess.run([sys.executable, "-c", program, tmp_path / "store"], check=True, timeout=60)
        assert (draft / "file").read_text() == "half"
    assert names(tmp_path) == ["store"]


def test_two_drafts_of_one_place_do_not_meet(tmp_path: Path) -> None:
    with replacing_folder(tmp_path / "store") as first:
        remove_leftovers(tmp_path / "store")
        with replacing_folder(tmp_path / "store") as second:
            (second / "file").write_text("second")
        (first / "file").write_text("first")
    assert names(tmp_path) == ["store"]
    assert (tmp_path / "store" / "file").read_text() == "first"


def test_an_old_store_whose_successor_never_came_comes_back(tmp_path: Path) -> None:
    folder_with(tmp_path / f".store.{HEX}.old", "old")
    folder_with(tmp_path / f".store.{HEX}", "whole, but not in place")
    remove_leftovers(tmp_path / "store")
    assert names(tmp_path) == ["store"]
    assert (tmp_path / "store" / "file").read_text() == "old"


def test_an_old_store_whose_successor_came_is_removed(tmp_path: Path) -> None:
    folder_with(tmp_path / f".store.{HEX}.old", "old")
    folder_with(tmp_path / "store", "new")
    remove_leftovers(tmp_path / "store")
    assert names(tmp_path) == ["store"]
    assert (tmp_path / "store" / "file").read_text() == "new"


def test_a_place_whose_folder_is_not_there_has_nothing_to_tidy(tmp_path: Path) -> None:
    remove_leftovers(tmp_path / "nowhere" / "store")
    assert names(tmp_path) == []


def test_a_store_behind_a_link_is_replaced_where_it_lies(tmp_path: Path) -> None:
    """As for a store that lies on a larger disk: the link stays."""
    (tmp_path / "large").mkdir()
    Graph.from_edges([0], [1], name="old").save(tmp_path / "large" / "store")
    (tmp_path / "store").symlink_to(tmp_path / "large" / "store")
    Graph.from_edges([0], [1], name="new").save(tmp_path / "store", overwrite=True)
    assert (tmp_path / "store").is_symlink()
    assert Graph.open(tmp_path / "large" / "store", verify=True).name == "new"
    assert sorted(each.name for each in tmp_path.rglob("*store*")) == ["store", "store"]
