import os

import pytest

from dorylus.training import durable


def test_a_file_is_replaced_whole(tmp_path):
    for content in (b"first", b"second"):
        durable.write_file(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_replaced_whole(tmp_path):
    durable.write_folder(tmp_path / "folder", {"a": b"1", "b": b"2"})
    durable.write_folder(tmp_path / "folder", {"c": b"3"})
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["c"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_others_may_read_what_the_umask_lets_them(tmp_path):
    before = os.umask(0o022)
    try:
        durable.write_file(tmp_path / "file", b"")
        durable.write_folder(tmp_path / "folder", {"a": b""})
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "folder", "folder/a")]
    assert modes == [0o644, 0o755, 0o644]


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt()])
def test_a_write_that_is_broken_off_leaves_what_there_was(tmp_path, monkeypatch, error):
    durable.write_file(tmp_path / "file", b"old")
    durable.write_folder(tmp_path / "folder", {"a": b"old"})

    def broken_off(*_):
        raise error

    monkeypatch.setattr(os, "fsync", broken_off)
    with pytest.raises(type(error)):
        durable.write_file(tmp_path / "file", b"new")
    with pytest.raises(type(error)):
        durable.write_folder(tmp_path / "folder", {"a": b"new"})
    assert (tmp_path / "file").read_bytes() == (tmp_path / "folder" / "a").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_everything_is_on_disk_before_it_is_in_place(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda old, new: (steps.append("rename"), replace(old, new)))
    durable.write_folder(tmp_path / "folder", {"a": b"1", "b": b"2"})
    assert steps == ["fsync", "fsync", "fsync", "rename", "fsync"]


def test_sweeping_takes_what_a_crash_left_and_nothing_else(tmp_path):
    (tmp_path / "kept").touch()
    (tmp_path / f"{durable.PARTIAL}1-file").touch()
    (tmp_path / f"{durable.PARTIAL}2-folder").mkdir()
    (tmp_path / f"{durable.PARTIAL}2-folder" / "a").touch()
    durable.sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
