import numpy as np
import pytest

from dorylus.paging import PAGE, IoThreads, ReadOnlyFile, WidenedArray, paged_array

NUM_ROWS, COLUMNS = 3000, 7  # rows that end within pages, of the file and of the window


@pytest.fixture
def stored(tmp_path):
    """(the numbers of a file, the array over it)."""
    expected = np.random.default_rng(0).standard_normal((NUM_ROWS, COLUMNS)).astype(np.float16)
    expected.tofile(tmp_path / "x.bin")
    io_threads = IoThreads(10)
    yield (
        expected,
        WidenedArray(expected.shape, [0, 1, 700, 2222, NUM_ROWS], ReadOnlyFile(tmp_path / "x.bin"), io_threads),
    )
    io_threads.close()


@pytest.mark.parametrize("piece", [2 * PAGE, 1 << 23])
def test_rows_are_those_of_the_file_in_float32(stored, piece, monkeypatch):
    monkeypatch.setattr(paged_array, "PIECE", piece)
    expected, array = stored
    array.acquire_all()
    assert array.array.dtype == np.float32
    np.testing.assert_array_equal(array.array, expected.astype(np.float32))
    array.release_all()


@pytest.mark.parametrize("number", range(4))
def test_a_span_that_was_left_comes_back(stored, number):
    expected, array = stored
    rows = slice(*[0, 1, 700, 2222, NUM_ROWS][number : number + 2])
    for _ in range(2):
        array.acquire(number)
        np.testing.assert_array_equal(array.array[rows], expected[rows].astype(np.float32))
        array.wrote(number)  # nothing is: it is only read
        array.release(number, leave=True)


def test_about_half_the_bytes_are_read(stored):
    expected, array = stored
    array.acquire(2)
    span = (2222 - 700) * COLUMNS * expected.itemsize
    assert span <= array._io_threads.moved.read <= span + 3 * PAGE
    array.release(2, leave=True)
