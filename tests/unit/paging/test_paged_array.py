import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scratch_files import bytes_array, rewrite, some_io_threads, values

from dorylus.paging import PAGE, PagedArray, ReadOnlyFile, ScratchFile


@pytest.fixture
def io_threads():
    with some_io_threads() as io_threads:
        yield io_threads


BOUNDS = {
    "whole pages": [0, PAGE, 3 * PAGE, 4 * PAGE],
    "shared pages": [0, PAGE + 7, 2 * PAGE + 9, 5 * PAGE + 1],
    "many in a page": [0, 3, 10, PAGE - 1, PAGE + 1, PAGE + 2, 3 * PAGE],
    "with empty ones": [0, 0, PAGE + 5, PAGE + 5, 3 * PAGE, 3 * PAGE],
    "one": [0, 3 * PAGE + 11],
    "less than a page": [0, 5],
}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_spans_come_back_as_they_were_left(bounds, io_threads):
    array, _ = bytes_array(bounds, io_threads)
    numbers = range(array.num_spans)
    for number in numbers:
        rewrite(array, bounds, number, number + 1)
    for number in reversed(numbers):
        assert values(array, bounds, number) <= {number + 1}
    for number in numbers:
        rewrite(array, bounds, number, number + 100)
    assert all(values(array, bounds, number) <= {number + 100} for number in numbers)


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_a_page_that_two_spans_share_is_never_written(bounds, io_threads):
    array, file = bytes_array(bounds, io_threads)
    for number in range(array.num_spans):
        rewrite(array, bounds, number, 9)
    io_threads.close()
    inner = {b for b in bounds[1:-1] if b % PAGE} | ({bounds[-1]} if bounds[-1] % PAGE else set())
    moved = {page for offset, size in file.writes for page in range(offset // PAGE, (offset + size) // PAGE)}
    assert not moved & {bound // PAGE for bound in inner}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("size", [0, 1, 511])
def test_a_file_that_is_only_read_is_read_whole_whatever_its_size(bounds, size, io_threads, tmp_path):
    bounds = [*bounds[:-1], bounds[-1] + size]
    content = np.random.default_rng(0).integers(0, 256, bounds[-1], np.uint8)
    (tmp_path / "content.bin").write_bytes(content.tobytes())
    array, _ = bytes_array(bounds, io_threads, ReadOnlyFile(tmp_path / "content.bin"), read_only=True)
    for _ in range(2):
        for number in range(array.num_spans):
            part = slice(bounds[number], bounds[number + 1])
            array.acquire(number)
            np.testing.assert_array_equal(array.array[part], content[part])
            array.wrote(number)  # a caller that only reads calls it too; nothing is written
            array.release(number, leave=True)
    array.file.close()
    assert (tmp_path / "content.bin").read_bytes() == content.tobytes()


def test_rows_of_any_shape_and_type_go_to_a_real_file(io_threads, tmp_path):
    bounds = [0, 300, 301, 1500]
    file = ScratchFile(tmp_path, 1500 * 3 * 8 + PAGE)
    array = PagedArray((1500, 3), np.int64, bounds, file, io_threads)
    expected = np.random.default_rng(0).integers(0, 1 << 60, (1500, 3))
    for number, (begin, end) in enumerate(pairwise(bounds)):
        array.acquire(number)
        array.array[begin:end] = expected[begin:end]
        array.wrote(number)
        array.release(number, leave=True)
    array.acquire_all()
    np.testing.assert_array_equal(array.array, expected)
    array.release_all()
    file.close()


def test_memory_is_given_back_when_a_span_is_left_and_taken_when_it_is_read(io_threads, tmp_path):
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

    size = 64 << 20
    file = ScratchFile(tmp_path, size)
    array = PagedArray((size,), np.uint8, [0, size // 2, size], file, io_threads)
    before = resident()
    for number in range(2):
        rewrite(array, [0, size // 2, size], number, 3)
    array.acquire(1)  # waits until it is written, and reads it again
    grown = resident() - before
    assert 0.4 * size < grown < 0.6 * size
    array.release(1, leave=True)
    assert resident() - before < 0.1 * size
    file.close()


def test_a_span_in_use_stays_in_memory(io_threads):
    bounds = [0, PAGE, 2 * PAGE]
    array, file = bytes_array(bounds, io_threads)
    array.acquire(0)
    array.acquire(0)
    array.array[:PAGE] = 5
    array.wrote(0)
    array.release(0, leave=True)
    array.discard(0)
    assert (array.array[:PAGE] == 5).all()
    assert not file.writes
    array.release(0, leave=True)
    assert values(array, bounds, 0) == {5}
    assert file.writes == [(0, PAGE)]


def test_a_span_that_was_not_written_to_again_is_dropped_without_a_write(io_threads):
    bounds = [0, PAGE]
    array, file = bytes_array(bounds, io_threads)
    rewrite(array, bounds, 0, 5)
    for _ in range(3):
        assert values(array, bounds, 0) == {5}
    io_threads.close()
    assert len(file.writes) == 1
    assert not array.array.any(), "it is still in memory"


def test_a_span_that_is_forgotten_is_not_read_again(io_threads):
    bounds = [0, PAGE, 2 * PAGE]
    array, file = bytes_array(bounds, io_threads)
    rewrite(array, bounds, 0, 5)
    assert values(array, bounds, 0) == {5}
    array.discard(0)
    assert values(array, bounds, 0) == {0}
    assert len(file.reads) == 1


def test_a_prefetched_span_is_read_once(io_threads):
    bounds = [0, PAGE, 2 * PAGE]
    array, file = bytes_array(bounds, io_threads)
    rewrite(array, bounds, 1, 8)
    array.acquire(1)
    array.release(1, leave=True)
    file.reads.clear()
    for number in (-1, 0, 1, 1, 2, 99):  # some of which there are none of, or nothing is stored of
        array.ahead(number)
    assert values(array, bounds, 1) == {8}
    assert file.reads == [(PAGE, PAGE)]


def test_a_use_of_a_span_that_is_being_written_waits_for_the_write(io_threads):
    bounds = [0, PAGE]
    array, file = bytes_array(bounds, io_threads)
    file.gate.clear()
    rewrite(array, bounds, 0, 6)
    found = []
    user = threading.Thread(target=lambda: found.append(values(array, bounds, 0)))
    user.start()
    assert not found
    file.gate.set()
    user.join(10)
    assert found == [{6}]


def test_forgetting_all_waits_for_operations_in_progress_and_starts_again(io_threads):
    bounds = [0, PAGE, 3 * PAGE + 5]
    array, file = bytes_array(bounds, io_threads)
    for number in range(2):
        rewrite(array, bounds, number, 4)
    array.discard_all()
    assert sorted(file.writes) == [(0, PAGE), (PAGE, 2 * PAGE)]
    assert not array.array.any()
    assert [values(array, bounds, number) for number in range(2)] == [{0}, {0}]
    assert not file.reads


def test_all_spans_can_be_used_at_once_while_some_are_in_use(io_threads):
    bounds = [0, PAGE + 1, 2 * PAGE, 5 * PAGE]
    array, _ = bytes_array(bounds, io_threads)
    for number in range(3):
        rewrite(array, bounds, number, number + 1)
    array.acquire(1)
    array.acquire_all()
    assert [set(array.array[b:e].tolist()) for b, e in pairwise(bounds)] == [{1}, {2}, {3}]
    array.release(1, leave=True)
    assert (array.array[2 * PAGE :] == 3).all()
    array.release_all()
    assert not array.array[2 * PAGE :].any()


def test_an_array_of_no_rows_has_nothing_to_move(io_threads):
    array, file = bytes_array([0, 0, 0], io_threads)
    for number in range(2):
        array.acquire(number)
        array.wrote(number)
        array.release(number, leave=True)
    array.acquire_all()
    array.release_all()
    array.discard_all()
    assert array.array.size == 0
    assert {size for _, size in (*file.reads, *file.writes)} <= {0}


def test_bytes_that_were_moved_are_counted(io_threads):
    bounds = [0, PAGE, 3 * PAGE]
    array, _ = bytes_array(bounds, io_threads)
    rewrite(array, bounds, 1, 5)
    assert values(array, bounds, 1) == {5}
    assert (io_threads.moved.written, io_threads.moved.read) == (2 * PAGE, 2 * PAGE)
