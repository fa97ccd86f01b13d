from contextlib import suppress

import pytest
from scratch_files import FullDisk, MemoryFile, bytes_array, rewrite, some_io_threads, values

from dorylus.errors import DataError, DeadlineError
from dorylus.paging import PAGE


def test_a_span_that_takes_too_long_misses_the_deadline():
    bounds = [0, PAGE]
    with some_io_threads(deadline_s=0.01) as io_threads:
        array, file = bytes_array(bounds, io_threads)
        file.gate.clear()
        rewrite(array, bounds, 0, 6)
        with pytest.raises(DeadlineError, match=r"the disk moved nothing within deadline_s=0\.01: raise it"):
            array.acquire(0)
        file.gate.set()


def test_an_error_of_the_writer_is_raised_by_the_next_use():
    bounds = [0, PAGE, 2 * PAGE]
    with some_io_threads() as io_threads:
        array, _ = bytes_array(bounds, io_threads, FullDisk(2 * PAGE))
        rewrite(array, bounds, 0, 5)
    with pytest.raises(DataError, match="Make room there"):
        rewrite(array, bounds, 1, 5)


def test_content_that_could_not_be_written_is_still_in_memory():
    bounds = [0, PAGE, 2 * PAGE]
    with some_io_threads() as io_threads:
        array, _ = bytes_array(bounds, io_threads, FullDisk(2 * PAGE))
        rewrite(array, bounds, 0, 5)
    array.acquire(0)
    assert (array.array[:PAGE] == 5).all()


def test_an_error_of_a_reader_is_raised_where_the_read_is_waited_for_and_the_next_use_reads_again():
    class Shaky(MemoryFile):
        broken = True

        def read_into(self, target, offset):
            if self.broken:
                raise OSError("the disk does not answer")
            super().read_into(target, offset)

    bounds = [0, PAGE]
    with some_io_threads() as io_threads:
        array, file = bytes_array(bounds, io_threads, Shaky(PAGE))
        rewrite(array, bounds, 0, 5)
        with pytest.raises(OSError, match="does not answer"):
            array.acquire(0)
        file.broken = False
        assert values(array, bounds, 0) == {5}


def test_a_span_that_could_not_be_handed_to_the_writer_can_still_be_used():
    bounds = [0, PAGE, 2 * PAGE]
    with some_io_threads(deadline_s=0.2) as io_threads:
        array, _ = bytes_array(bounds, io_threads, FullDisk(2 * PAGE))
        for number in range(2):
            array.acquire(number)
            array.array[bounds[number] : bounds[number + 1]] = 7
            array.wrote(number)
        array.release(0, leave=True)
    with pytest.raises(DataError, match="full disk"):
        array.release(1, leave=True)
    with suppress(DataError):  # at once: the span is in memory, or the error says what failed; no write is waited for
        array.acquire(1)
    assert (array.array[PAGE:] == 7).all()
