import os
from pathlib import Path

import pytest

from dorylus import files
from dorylus.errors import Terminated


def test_a_file_is_replaced_whole(tmp_path):
    for content in (b"first", b"second"):
        files.write_file(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_replaced_whole(tmp_path):
    files.write_folder(tmp_path / "folder", {"a": b"1", "b": b"2"})
    files.write_folder(tmp_path / "folder", {"c": b"3"})
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["c"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_other_users_may_read_as_far_as_the_umask_allows(tmp_path):
    before = os.umask(0o022)
    try:
        files.write_file(tmp_path / "file", b"")
        files.write_folder(tmp_path / "folder", {"a": b""})
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "folder", "folder/a")]
    assert modes == [0o644, 0o755, 0o644]


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_the_old_content(tmp_path, monkeypatch, error):
    files.write_file(tmp_path / "file", b"old")
    files.write_folder(tmp_path / "folder", {"a": b"old"})

    def interrupted(*_):
        raise error

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(type(error)):
        files.write_file(tmp_path / "file", b"new")
    with pytest.raises(type(error)):
        files.write_folder(tmp_path / "folder", {"a": b"new"})
    assert (tmp_path / "file").read_bytes() == (tmp_path / "folder" / "a").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_everything_is_on_disk_before_it_is_in_place(tmp_path, monkeypatch):
    steps = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "rename", lambda old, new: (steps.append("rename"), rename(old, new)))
    files.write_folder(tmp_path / "folder", {"a": b"1", "b": b"2"})
    assert steps == ["fsync", "fsync", "fsync", "rename", "fsync"]


def test_sweeping_removes_only_the_leftovers_of_a_crash(tmp_path):
    (tmp_path / "kept").touch()
    (tmp_path / f"{files.PARTIAL}0123456789abcdef-file").touch()
    before = tmp_path / f"{files.PARTIAL}4711-01234567-folder"  # as versions before named it, by their process
    before.mkdir()
    (before / "a").touch()
    (tmp_path / f"{files.PARTIAL}of-a-user").touch()
    files.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{files.PARTIAL}of-a-user", "kept"]


@pytest.fixture(params=["exchange", "two renames"])
def names_are_exchanged(request, monkeypatch):
    """Both ways for a folder to take the place of another; NFS has only the second."""
    if request.param == "two renames":
        monkeypatch.setattr(files, "exchange", lambda first, second: False)


def test_a_folder_takes_the_place_of_another_both_ways(tmp_path, names_are_exchanged):
    for content in (b"1", b"2", b"3"):
        files.write_folder(tmp_path / "folder", {"a": content})
        assert (tmp_path / "folder" / "a").read_bytes() == content
        assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_an_old_folder_comes_back_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    files.write_folder(tmp_path / "folder", {"a": b"old"})
    rename, calls = os.rename, []

    def second_fails(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(files, "exchange", lambda first, second: False)
    monkeypatch.setattr(os, "rename", second_fails)
    with pytest.raises(OSError, match="Input/output error"):
        files.write_folder(tmp_path / "folder", {"a": b"new"})
    assert (tmp_path / "folder" / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_names_are_exchanged_in_one_step_and_only_if_both_are_there(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").mkdir()
    assert files.exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "a"
    with pytest.raises(FileNotFoundError):
        files.exchange(tmp_path / "a", tmp_path / "c")


def test_files_that_a_process_writes_are_not_swept_and_those_of_a_dead_one_are(tmp_path):
    left = tmp_path / f"{files.PARTIAL}0123456789abcdef-dead"
    left.touch()
    with files.new_file(tmp_path / "first") as first:
        first.write(b"1")
        with files.new_file(tmp_path / "second") as second:
            second.write(b"2")
        files.sweep_abandoned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
    assert (tmp_path / "first").read_bytes() == b"1"


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt()])
def test_an_interrupted_new_file_leaves_nothing(tmp_path, error):
    def interrupted():
        with files.new_file(tmp_path / "file") as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_a_signal_just_after_the_first_name_exists_leaves_nothing(tmp_path, monkeypatch):
    real_mkdir, real_hold = Path.mkdir, files.hold

    def mkdir(path, *arguments, **options):
        real_mkdir(path, *arguments, **options)
        raise Terminated(15)

    def hold(descriptor):
        real_hold(descriptor)
        raise Terminated(15)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(Terminated):
        files.write_folder(tmp_path / "folder", {"a": b"1"})
    monkeypatch.setattr(files, "hold", hold)
    with pytest.raises(Terminated), files.new_file(tmp_path / "file"):
        pytest.fail("the block is not entered")
    assert not list(tmp_path.iterdir())
