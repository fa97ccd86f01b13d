import mmap

import numpy as np
import pytest

import dorylus.graph.arrays as arrays

PAGE = mmap.PAGESIZE
SIZE = 3 * PAGE + 100


@pytest.fixture
def content(monkeypatch):
    """An array that is large enough to be dropped."""
    monkeypatch.setattr(arrays, "SMALL", 0)
    return np.random.default_rng(0).integers(1, 200, SIZE, np.uint8)


@pytest.fixture
def file(content, tmp_path):
    content.tofile(tmp_path / "file.bin")
    return tmp_path / "file.bin"


def overwritten(file):
    """The mapped file with every byte changed, in memory alone: a dropped page comes back as it is stored."""
    array = np.memmap(file, np.uint8, mode="c")
    array[:] = 255
    return array


def test_released_pages_read_as_before(content, file):
    array = np.memmap(file, np.uint8, mode="r")
    for _ in range(2):
        np.testing.assert_array_equal(array, content)
        arrays.drop_pages(array)


def test_all_pages_of_a_whole_file_are_released_including_the_last(content, file):
    array = overwritten(file)
    arrays.drop_pages(array)
    np.testing.assert_array_equal(array, content)


def test_releasing_a_part_keeps_the_pages_it_shares_with_others(content, file):
    array = overwritten(file)
    arrays.drop_pages(array[10 : 2 * PAGE + 10])
    assert (array[:PAGE] == 255).all()
    np.testing.assert_array_equal(array[PAGE : 2 * PAGE], content[PAGE : 2 * PAGE])
    assert (array[2 * PAGE :] == 255).all()


def test_views_of_other_types_are_parts_of_the_file_too(content, file):
    array = overwritten(file)
    arrays.drop_pages(np.asarray(array)[: 2 * PAGE].view(np.int32))
    np.testing.assert_array_equal(array[: 2 * PAGE], content[: 2 * PAGE])
    assert (array[2 * PAGE :] == 255).all()


def test_nothing_happens_to_an_array_that_is_not_mapped(content):
    array = content.copy()
    arrays.drop_pages(array)
    arrays.drop_pages(array[5:])
    np.testing.assert_array_equal(array, content)


def test_nothing_happens_to_a_part_smaller_than_a_page(file):
    array = overwritten(file)
    arrays.drop_pages(array[PAGE + 1 : 2 * PAGE])
    assert (array == 255).all()


def test_small_arrays_are_not_released(file, monkeypatch):
    monkeypatch.setattr(arrays, "SMALL", SIZE + 1)
    array = overwritten(file)
    arrays.drop_pages(array)
    assert (array == 255).all()
