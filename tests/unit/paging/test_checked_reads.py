"""Reads that are compared: with the size a file had, the checksums it was written with, and what was read before."""

import errno
import fcntl
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.backends.native.host import crc32_blocks
from dorylus.errors import DataError
from dorylus.paging import PAGE, BlockSums, FileState, ReadOnlyFile, ReservedMemory, ScratchFile, block_file

BLOCK = 3 * PAGE


def some_bytes(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def sums_of(content):
    return BlockSums(crc32_blocks(content, BLOCK), BLOCK, content.size)


def pages(number):
    return ReservedMemory(number * PAGE).bytes


@pytest.fixture
def path(tmp_path):
    some_bytes(20 * PAGE + 700).tofile(tmp_path / "content.bin")
    return tmp_path / "content.bin"


@pytest.mark.parametrize("size", [0, 10, 5 * PAGE, 7 * PAGE + 3])
def test_a_truncated_file_gives_an_error_and_not_old_content(path, size):
    file = ReadOnlyFile(path)
    os.truncate(path, size)
    with pytest.raises(
        DataError, match=rf"content\.bin was cut short from 82,620 to {size:,} bytes while it was in use"
    ):
        file.read_into(pages(4), 6 * PAGE)


def test_a_file_truncated_behind_the_read_range_is_noticed_too(path):
    file = ReadOnlyFile(path)
    os.truncate(path, 19 * PAGE)
    with pytest.raises(DataError, match="was cut short"):
        file.read_into(pages(2), 0)


def test_a_file_that_grows_is_refused(path):
    file = ReadOnlyFile(path)
    with open(path, "ab") as more:
        more.write(b"x")
    with pytest.raises(DataError, match="grew from 82,620 to 82,621 bytes"):
        file.read_into(pages(2), 0)


def test_a_renamed_file_is_read_on(path):
    file, found = ReadOnlyFile(path), pages(2)
    file.read_into(found, 0)
    path.rename(path.with_name("renamed.bin"))
    file.read_into(found, 0)
    path.with_name("renamed.bin").unlink()
    file.read_into(found, 0)
    np.testing.assert_array_equal(found, some_bytes(2 * PAGE))


def test_another_file_of_the_same_name_is_refused_when_it_is_opened(path):
    state = FileState.of(path)
    content = path.read_bytes()
    path.rename(path.with_name("old.bin"))
    path.write_bytes(content)
    os.utime(path, ns=(state.mtime_ns, state.mtime_ns + 1))
    with pytest.raises(DataError, match=r"content\.bin was replaced by another file"):
        ReadOnlyFile(path, state)


def test_a_file_with_another_inode_is_the_same_if_size_and_time_are(path):
    state = FileState.of(path)._replace(inode=1, device=2)
    ReadOnlyFile(path, state).read_into(pages(2), 0)


@given(st.integers(0, 20), st.integers(1, 21), st.integers(0, 20 * PAGE + 699))
def test_a_wrong_byte_is_found_by_the_read_whose_blocks_it_is_in(tmp_path_factory, first, number, wrong):
    folder = tmp_path_factory.mktemp("wrong")
    content = some_bytes(20 * PAGE + 700)
    sums = sums_of(content)
    content[wrong] ^= 16
    content.tofile(folder / "content.bin")
    file = ReadOnlyFile(folder / "content.bin", sums=sums)
    begin, end = first * PAGE, min((first + number) * PAGE, content.size)
    if begin // BLOCK * BLOCK <= wrong < -(-end // BLOCK) * BLOCK:
        block = wrong // BLOCK * BLOCK
        with pytest.raises(
            DataError, match=f"damaged: its bytes from {block:,} to {min(block + BLOCK, content.size):,} "
        ):
            file.read_into(pages(number), begin)
    else:
        found = pages(number)
        file.read_into(found, begin)
        np.testing.assert_array_equal(found[: end - begin], content[begin:end])
    file.close()


def test_bytes_that_change_while_size_and_times_stay_are_found_within_eight_reads(path, monkeypatch):
    """As on a failing disk: the metadata that the kernel reports is unchanged."""
    file = ReadOnlyFile(path, sums=sums_of(some_bytes(20 * PAGE + 700)))
    file.read_into(pages(2), PAGE)
    state = FileState.of(file._descriptor)
    monkeypatch.setattr(FileState, "of", lambda file: state)
    with open(path, "r+b") as written:
        written.seek(PAGE + 5)
        written.write(b"spoilt")
    for _ in range(block_file.EVERY - 1):
        file.read_into(pages(2), PAGE)
    with pytest.raises(DataError, match="gave other bytes from 4,096 to 12,288 than before"):
        file.read_into(pages(2), PAGE)


def test_scratch_that_is_cut_short_gives_an_error(tmp_path):
    file = ScratchFile(tmp_path, 4 * PAGE)
    file.write_from(pages(4), 0)
    os.ftruncate(file._descriptor, 3 * PAGE)
    with pytest.raises(DataError, match=r"a scratch file in .* ended at byte 12,288, 4,096 bytes too soon"):
        file.read_into(pages(2), 2 * PAGE)


def test_scratch_that_gives_other_bytes_than_were_written_is_found(tmp_path):
    file, source = ScratchFile(tmp_path, 2 * PAGE), pages(2)
    file.write_from(source, 0)
    source[:] = 1
    os.pwrite(file._descriptor, source.data, 0)
    with pytest.raises(DataError, match="gave other bytes from 0 to 8,192 than before"):
        file.read_into(pages(2), 0)


def test_scratch_is_written_again_and_again(tmp_path):
    file, source, found = ScratchFile(tmp_path, 2 * PAGE), pages(2), pages(2)
    for value in range(2 * block_file.EVERY + 1):
        source[:] = value
        file.write_from(source, 0)
        for _ in range(3):
            file.read_into(found, 0)
            assert (found == value).all()


def test_reused_scratch_is_not_compared_with_its_old_content(tmp_path):
    file, source = ScratchFile(tmp_path, 2 * PAGE), pages(2)
    file.write_from(source, 0)
    file.use_again(2 * PAGE)
    source[:] = 7
    os.pwrite(file._descriptor, source.data, 0)
    found = pages(2)
    file.read_into(found, 0)
    assert (found == 7).all()


def refusing(really, what):
    """Moves as some file systems make them: past the page cache they answer EINVAL, or move less than a page."""

    def move(descriptor, buffers, offset):
        if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            return really(descriptor, buffers, offset)
        if what == "everything" or offset % 512:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return really(descriptor, [buffers[0][:512]], offset) - 100  # the rest begins within a sector

    return move


@pytest.mark.parametrize("what", ["everything", "the rest of a short move"])
def test_a_file_system_that_refuses_direct_reads_is_used_through_the_page_cache(tmp_path, monkeypatch, what):
    file, source, found = ScratchFile(tmp_path, 6 * PAGE), pages(6), pages(6)
    source[:] = some_bytes(source.size)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", refusing(os.pwritev, what))
        file.write_from(source, 0)
    stored = tmp_path / "stored.bin"
    source.tofile(stored)
    for each in (file, ReadOnlyFile(stored)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", refusing(os.preadv, what))
            each.read_into(found, 0)
        np.testing.assert_array_equal(found, source)


def test_a_disk_that_cannot_be_read_is_named(path, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = ReadOnlyFile(path)
    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(DataError, match=r"cannot read .*content\.bin at byte 0: Input/output error\. Check the disk"):
        file.read_into(pages(1), 0)
