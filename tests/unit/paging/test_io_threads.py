import threading

import pytest
from scratch_files import some_io_threads

from dorylus.errors import DataError, DeadlineError
from dorylus.paging import Moved
from dorylus.paging import io_threads as io_threads_module


def failing():
    raise DataError("the disk is full")


def test_moved_bytes_are_counted_by_direction():
    with some_io_threads() as io_threads:
        assert io_threads.read(lambda: 5).result(10) == 5
        io_threads.count(7)
        io_threads.write(lambda: 11)
    assert (io_threads.moved.read, io_threads.moved.written) == (12, 11)


def test_closing_completes_operations_in_progress():
    done = []
    with some_io_threads() as io_threads:
        for number in range(20):
            io_threads.write(lambda number=number: done.append(number) or 1)
    assert sorted(done) == list(range(20))
    assert io_threads.moved.written == 20


def test_an_error_of_a_reader_is_raised_where_the_read_is_waited_for():
    with some_io_threads() as io_threads:
        with pytest.raises(DataError, match="the disk is full"):
            io_threads.read(failing).result(10)
        io_threads.check()


def test_an_error_of_a_writer_is_raised_by_the_next_write():
    with some_io_threads() as io_threads:
        io_threads.write(failing)
    with pytest.raises(DataError, match="the disk is full"):
        io_threads.check()
    with pytest.raises(DataError, match="the disk is full"):
        io_threads.write(lambda: 1)


def test_an_error_of_a_writer_is_raised_by_the_next_read():
    with some_io_threads() as io_threads:
        io_threads.write(failing)
    with pytest.raises(DataError, match="the disk is full"):
        io_threads.read(lambda: 1)


def test_writes_that_are_faster_than_the_disk_wait_for_a_bounded_time():
    gate = threading.Event()
    with some_io_threads(deadline_s=0.01) as io_threads:
        for _ in range(io_threads_module.WRITES):
            io_threads.write(lambda: int(gate.wait(10)))
        with pytest.raises(DeadlineError, match=r"the disk took nothing within deadline_s=0\.01: raise it"):
            io_threads.write(lambda: 1)
        gate.set()
    assert io_threads.moved.written == io_threads_module.WRITES


def test_a_write_that_failed_makes_room_for_the_next_ones():
    with some_io_threads() as io_threads:
        for _ in range(3 * io_threads_module.WRITES):
            io_threads.write(lambda: 1)
    assert io_threads.moved.written == 3 * io_threads_module.WRITES


def test_the_first_of_many_threads_is_counted_like_the_last():
    with some_io_threads() as io_threads:
        threads = [threading.Thread(target=lambda: [io_threads.count(1) for _ in range(500)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert io_threads.moved.read == 2000


def test_bytes_moved_since_a_snapshot_are_the_difference():
    assert Moved(10, 7).since(Moved(4, 7)) == Moved(read=6, written=0)
