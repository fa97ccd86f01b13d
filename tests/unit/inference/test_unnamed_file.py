import errno
import os
import stat

import pytest

from dorylus.inference.prediction_file import UnnamedFile


@pytest.fixture(params=["unnamed", "hidden"])
def folder(request, tmp_path, monkeypatch):
    """A folder, on a file system that has files without names and on one that has not."""
    if request.param == "hidden":
        real = os.open

        def refusing(path, flags, *others, **named):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            return real(path, flags, *others, **named)

        monkeypatch.setattr(os, "open", refusing)
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_finished_file_replaces_the_old_one(folder):
    (folder / "x").write_bytes(b"old")
    with UnnamedFile(folder / "x") as draft:
        draft.file.write(b"new")
        draft.settle()
        assert (folder / "x").read_bytes() == b"old"
        draft.put_in_place()
    assert (folder / "x").read_bytes() == b"new"
    assert names(folder) == ["x"]


def test_an_unfinished_file_leaves_nothing(folder):
    with UnnamedFile(folder / "x", 1000) as draft:
        draft.file.write(b"half")
    assert names(folder) == []


def test_an_unnamed_file_is_visible_to_no_process(tmp_path):
    with UnnamedFile(tmp_path / "x") as draft:
        draft.file.write(b"half")
        draft.settle()
        assert names(tmp_path) == []


def test_its_space_is_reserved_at_once(folder):
    with UnnamedFile(folder / "x", 1 << 20) as draft:
        assert os.fstat(draft.file.fileno()).st_blocks * 512 >= 1 << 20


def test_too_little_space_is_an_error_that_leaves_nothing(folder):
    with pytest.raises(OSError, match=r"\[Errno (28|27|22)\]"):
        UnnamedFile(folder / "x", 1 << 60)
    assert names(folder) == []


def test_other_users_may_read_it_as_far_as_the_umask_allows(folder):
    with open(folder / "usual", "wb"):
        pass
    with UnnamedFile(folder / "x") as draft:
        draft.put_in_place()
    modes = {stat.S_IMODE((folder / name).stat().st_mode) for name in ("usual", "x")}
    assert len(modes) == 1


def test_a_folder_that_does_not_exist_is_an_error(folder):
    with pytest.raises(FileNotFoundError):
        UnnamedFile(folder / "no" / "x")
