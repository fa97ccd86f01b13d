import errno
import fcntl
import gc
import os
from pathlib import Path

import numpy as np
import pytest

from dorylus.errors import DataError
from dorylus.paging import PAGE, ReadOnlyFile, ReservedMemory, ScratchFile, block_file


def on_tmpfs():
    """Whether /dev/shm is a file system in memory."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return any(place == "/dev/shm" and kind == "tmpfs" for _, place, kind, *_ in mounts) and os.access(
        "/dev/shm", os.W_OK
    )


def open_past_no_cache(path, flags, mode=0o777, *, really_open=os.open):
    """What opening a file is like where there is no way past the page cache."""
    if flags & os.O_DIRECT:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return really_open(path, flags, mode)


@pytest.fixture(params=["a disk", "tmpfs", "cached"])
def folder(request, tmp_path, monkeypatch):
    """Folders of a disk, of a file system in memory, and of one where nothing goes past the page cache."""
    if request.param == "cached":
        monkeypatch.setattr(os, "open", open_past_no_cache)
    if request.param == "tmpfs":
        if not on_tmpfs():
            pytest.skip("/dev/shm is no tmpfs here")
        tmp_path = Path("/dev/shm") / f"dorylus-test-{os.getpid()}"
        tmp_path.mkdir()
    yield tmp_path
    assert not list(tmp_path.iterdir())
    if request.param == "tmpfs":
        tmp_path.rmdir()


def pages(number, seed=0):
    """Random bytes that begin at a page, as files want them."""
    taken = ReservedMemory(number * PAGE).bytes
    taken[:] = np.random.default_rng(seed).integers(0, 256, taken.size, np.uint8)
    return taken


def test_what_was_written_is_read_again(folder):
    file, content = ScratchFile(folder, 5 * PAGE), pages(5)
    file.write_from(content[: 2 * PAGE], 0)
    file.write_from(content[2 * PAGE :], 2 * PAGE)
    found = ReservedMemory(4 * PAGE).bytes
    file.read_into(found, PAGE)
    np.testing.assert_array_equal(found, content[PAGE:])
    file.close()


def test_large_moves_are_made_in_pieces(folder, monkeypatch):
    monkeypatch.setattr(block_file, "MOST", 2 * PAGE)
    file, content, found = ScratchFile(folder, 7 * PAGE), pages(7), ReservedMemory(7 * PAGE).bytes
    file.write_from(content, 0)
    file.read_into(found, 0)
    np.testing.assert_array_equal(found, content)
    file.close()


def test_nothing_is_moved_where_there_is_nothing(folder):
    file = ScratchFile(folder, 0)
    file.write_from(pages(1)[:0], 0)
    file.read_into(pages(1)[:0], 0)
    assert file.size == 0
    file.close()


@pytest.mark.parametrize("size", [1, 511, 512, PAGE - 1, PAGE, PAGE + 1, PAGE + 512, 3 * PAGE + 700])
def test_a_file_that_ends_within_a_page_is_read_to_its_end(tmp_path, size):
    content = np.random.default_rng(size).integers(1, 256, size, np.uint8)
    (tmp_path / "content.bin").write_bytes(content.tobytes())
    file, found = ReadOnlyFile(tmp_path / "content.bin"), ReservedMemory(5 * PAGE).bytes
    file.read_into(found, 0)
    np.testing.assert_array_equal(found[:size], content)
    assert not found[size:].any()  # left as it was
    file.close()


def test_reading_behind_the_end_of_a_file_leaves_the_target_as_it_is(tmp_path):
    (tmp_path / "short.bin").write_bytes(b"x" * 10)
    file, target = ReadOnlyFile(tmp_path / "short.bin"), ReservedMemory(PAGE).bytes
    target.fill(3)
    file.read_into(target, 4 * PAGE)
    assert (target == 3).all()
    file.close()


def test_scratch_has_no_name_and_its_space_is_set_aside_when_something_is_written(folder):
    file = ScratchFile(folder, 32 << 20)
    assert not list(folder.iterdir())
    assert os.fstat(file._descriptor).st_blocks == 0
    file.write_from(pages(1), PAGE)
    assert os.fstat(file._descriptor).st_blocks * 512 >= 32 << 20
    file.close()


def test_a_closed_file_may_be_closed_again_and_no_descriptor_is_left(folder):
    before = len(list(Path("/proc/self/fd").iterdir()))
    file = ScratchFile(folder, PAGE)
    file.close()
    file.close()
    forgotten = ScratchFile(folder, PAGE)
    del forgotten
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def no_space(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_scratch_that_cannot_be_had_is_refused_at_the_first_write_with_the_cure(folder, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    file = ScratchFile(folder, 3 << 30)
    with pytest.raises(DataError, match=r"cannot have 3\.00 GiB: No space left on device\. .* scratch_dir") as refused:
        file.write_from(pages(1), 0)
    assert str(folder) in str(refused.value)
    assert os.fstat(file._descriptor).st_size == 0
    file.close()
    assert not list(folder.iterdir())


def test_tmpfs_that_is_really_full_says_so():
    if not on_tmpfs():
        pytest.skip("/dev/shm is no tmpfs here")
    found = os.statvfs("/dev/shm")
    file = ScratchFile("/dev/shm", 2 * found.f_blocks * found.f_frsize)
    with pytest.raises(DataError, match=r"a scratch file in /dev/shm cannot have .* No space left on device"):
        file.write_from(pages(1), 0)
    now = os.statvfs("/dev/shm")
    assert now.f_bfree * now.f_frsize > 0.5 * found.f_bfree * found.f_frsize  # what it got was given back
    file.close()


def test_a_disk_that_fills_up_while_it_is_written_to_says_so_with_the_cure(folder, monkeypatch):
    file = ScratchFile(folder, PAGE)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", no_space)
        with pytest.raises(
            DataError, match=r"cannot write to a scratch file in .*: No space left on device\. Make room"
        ):
            file.write_from(pages(1), 0)
    file.close()


def test_where_there_is_no_way_past_the_page_cache_it_is_told_to_forget(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "open", open_past_no_cache)
    forgotten, really_advise = [], os.posix_fadvise

    def advise(descriptor, offset, length, advice):
        forgotten.append((offset, length, advice))
        really_advise(descriptor, offset, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    file = ScratchFile(tmp_path, 3 * PAGE)
    file.write_from(pages(2), PAGE)
    file.read_into(ReservedMemory(PAGE).bytes, PAGE)
    file.close()
    assert forgotten == [(PAGE, 2 * PAGE, os.POSIX_FADV_DONTNEED), (PAGE, PAGE, os.POSIX_FADV_DONTNEED)]


@pytest.mark.parametrize("make", [ReadOnlyFile, lambda path: ScratchFile(path, PAGE)], ids=["stored", "scratch"])
def test_a_file_that_cannot_be_opened_leaves_nothing_to_be_closed(make, tmp_path):
    with pytest.raises((OSError, DataError)) as caught:
        make(tmp_path / "nowhere")
    del caught
    gc.collect()  # what is half made goes here: were it to fail, that would be a warning, and so an error


def test_a_scratch_folder_that_is_not_there_is_refused_with_the_cure(tmp_path):
    with pytest.raises(DataError, match="scratch_dir"):
        ScratchFile(tmp_path / "nowhere", PAGE)


def test_a_thread_that_is_refused_while_another_leaves_direct_access_tries_again(tmp_path, monkeypatch):
    content = pages(2)
    (tmp_path / "file").write_bytes(content.tobytes())
    file = ReadOnlyFile(tmp_path / "file")
    first, second = ReservedMemory(PAGE).bytes, ReservedMemory(PAGE).bytes
    really_read, really_control = os.preadv, fcntl.fcntl
    descriptors = set()

    def read(descriptor, *more):
        if really_control(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return really_read(descriptor, *more)

    def control(descriptor, command, *more):
        if command == fcntl.F_SETFL and descriptor not in descriptors:
            descriptors.add(descriptor)
            file.read_into(second, PAGE)  # as another thread would, just before the flag changes
        return really_control(descriptor, command, *more)

    monkeypatch.setattr(os, "preadv", read)
    monkeypatch.setattr(fcntl, "fcntl", control)
    if not really_control(file._descriptor, fcntl.F_GETFL) & os.O_DIRECT:
        pytest.skip("this file system has no direct access")
    file.read_into(first, 0)
    np.testing.assert_array_equal(first, content[:PAGE])
    np.testing.assert_array_equal(second, content[PAGE:])
    assert len(descriptors) == 1
    file.close()
