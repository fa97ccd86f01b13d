import os
from itertools import pairwise

import numpy as np
import pytest

from dorylus.errors import DataError
from dorylus.paging import PAGE, Pager, ReadOnlyFile


@pytest.fixture
def pager(tmp_path):
    (tmp_path / "scratch").mkdir()
    pager = Pager(tmp_path / "scratch", deadline_s=10)
    yield pager
    pager.close()
    assert not list((tmp_path / "scratch").iterdir())


def bounds_of(*numbers):
    return np.array(numbers, np.int64)


def filled(array, bounds, value):
    """The array, with one value in every span, left."""
    for number, (begin, end) in enumerate(pairwise(bounds)):
        array.acquire(number)
        array.array[begin:end] = value
        array.wrote(number)
        array.release(number, leave=True)


def content(array):
    array.acquire_all()
    found = array.array.copy()
    array.release_all()
    return found


def test_a_stored_array_is_that_of_the_file(pager, tmp_path):
    expected = np.random.default_rng(0).random((900, 7), np.float32)
    expected.tofile(tmp_path / "rows.bin")
    array = pager.stored(ReadOnlyFile(tmp_path / "rows.bin"), expected, bounds_of(0, 200, 200, 900))
    assert array.read_only
    np.testing.assert_array_equal(content(array), expected)
    array.file.close()


def test_a_scratch_array_starts_as_zeros_and_keeps_its_content(pager):
    bounds = bounds_of(0, 500, 1000)
    array = pager.scratch((1000, 5), np.float32, bounds)
    assert not content(array).any()
    filled(array, bounds, 2.5)
    assert (content(array) == 2.5).all()


@pytest.mark.parametrize("pages", [9, 10, 11])
def test_released_scratch_is_reused_and_grows_where_it_is_too_small(pager, pages):
    bounds = bounds_of(0, 10 * PAGE)
    first = pager.scratch((10 * PAGE,), np.uint8, bounds)
    filled(first, bounds, 7)
    pager.give_back(first)
    again = pager.scratch((pages * PAGE,), np.uint8, bounds_of(0, pages * PAGE))
    assert again.file is first.file
    assert not content(again).any(), "what was there before shines through"
    filled(again, bounds_of(0, pages * PAGE), 8)
    assert (content(again) == 8).all()
    assert os.fstat(again.file._descriptor).st_blocks * 512 == max(pages, 10) * PAGE


def test_memory_is_freed_with_the_released_array(pager):
    array = pager.scratch((4 * PAGE,), np.uint8, bounds_of(0, 4 * PAGE))
    array.acquire(0)
    array.array.fill(1)
    array.wrote(0)
    array.release(0, leave=False)
    pager.give_back(array)
    assert not array.array.any()
    assert pager.io_threads.moved.written == 0  # it is never read again


def test_the_smallest_scratch_that_fits_is_taken(pager):
    made = [pager.scratch((pages * PAGE,), np.uint8, bounds_of(0, pages * PAGE)) for pages in (8, 2, 4)]
    for array in made:
        filled(array, bounds_of(0, array.array.size), 1)
        pager.give_back(array)
    assert pager.scratch((3 * PAGE,), np.uint8, bounds_of(0, 3 * PAGE)).file is made[2].file
    assert pager.scratch((9 * PAGE,), np.uint8, bounds_of(0, 9 * PAGE)).file is made[0].file  # the largest


def test_no_two_arrays_share_a_scratch_file(pager):
    arrays = [pager.scratch((PAGE,), np.uint8, bounds_of(0, PAGE)) for _ in range(3)]
    assert len({id(array.file) for array in arrays}) == 3


def test_moved_bytes_are_counted(pager):
    bounds = bounds_of(0, PAGE, 4 * PAGE)
    array = pager.scratch((4 * PAGE,), np.uint8, bounds)
    filled(array, bounds, 1)
    content(array)
    assert (pager.io_threads.moved.written, pager.io_threads.moved.read) == (4 * PAGE, 4 * PAGE)


def test_an_array_that_never_left_memory_uses_no_scratch(pager):
    array = pager.scratch((4 * PAGE,), np.uint8, bounds_of(0, 4 * PAGE))
    array.acquire(0)
    array.wrote(0)
    array.release(0, leave=False)
    assert not array.file.set_aside
    pager.give_back(array)
    assert pager.scratch((4 * PAGE,), np.uint8, bounds_of(0, 4 * PAGE)).file is not array.file


def test_a_full_disk_is_reported_by_the_next_read_or_write(pager, monkeypatch):
    def no_space(descriptor, offset, length):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", no_space)
    array = pager.scratch((4 * PAGE,), np.uint8, bounds_of(0, 4 * PAGE))
    filled(array, bounds_of(0, 4 * PAGE), 1)
    pager.io_threads.close()  # when all that was begun is over
    with pytest.raises(DataError, match="name another folder as scratch_dir"):
        pager.io_threads.check()
