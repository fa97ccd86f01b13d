import threading

import pytest
from scratch_files import a_mover

from dorylus.errors import DataError
from dorylus.paging import Moved
from dorylus.paging import io_threads as mover_module


def failing():
    raise DataError("the disk is full")


def test_what_was_moved_is_counted_by_direction():
    with a_mover() as mover:
        assert mover.read(lambda: 5).result(10) == 5
        mover.count(7)
        mover.write(lambda: 11)
    assert (mover.moved.read, mover.moved.written) == (12, 11)


def test_closing_finishes_what_was_begun():
    done = []
    with a_mover() as mover:
        for number in range(20):
            mover.write(lambda number=number: done.append(number) or 1)
    assert sorted(done) == list(range(20))
    assert mover.moved.written == 20


def test_an_error_of_a_reader_comes_up_where_it_is_waited_for():
    with a_mover() as mover:
        with pytest.raises(DataError, match="the disk is full"):
            mover.read(failing).result(10)
        mover.check()


def test_an_error_of_a_writer_comes_up_with_who_writes_next():
    with a_mover() as mover:
        mover.write(failing)
    with pytest.raises(DataError, match="the disk is full"):
        mover.check()
    with pytest.raises(DataError, match="the disk is full"):
        mover.write(lambda: 1)


def test_an_error_of_a_writer_comes_up_with_who_reads_next():
    with a_mover() as mover:
        mover.write(failing)
    with pytest.raises(DataError, match="the disk is full"):
        mover.read(lambda: 1)


def test_who_writes_faster_than_the_disk_waits_and_not_for_ever():
    gate = threading.Event()
    with a_mover(deadline_s=0.01) as mover:
        for _ in range(mover_module.WRITES):
            mover.write(lambda: int(gate.wait(10)))
        with pytest.raises(TimeoutError, match=r"the disk took nothing within deadline_s=0\.01\."):
            mover.write(lambda: 1)
        gate.set()
    assert mover.moved.written == mover_module.WRITES


def test_a_write_that_failed_makes_room_for_the_next_ones():
    with a_mover() as mover:
        for _ in range(3 * mover_module.WRITES):
            mover.write(lambda: 1)
    assert mover.moved.written == 3 * mover_module.WRITES


def test_the_first_of_many_threads_is_counted_like_the_last():
    with a_mover() as mover:
        threads = [threading.Thread(target=lambda: [mover.count(1) for _ in range(500)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert mover.moved.read == 2000


def test_what_was_moved_since_is_the_difference():
    assert Moved(10, 7).since(Moved(4, 7)) == Moved(read=6, written=0)
