import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.backends.backend import NumberFormat
from dorylus.backends.host import NativeBackend
from dorylus.servers.graph.matrices import Arena, BoundedArena, Matrices

BACKEND = NativeBackend()


def address(array):
    return array.__array_interface__["data"][0]


@pytest.fixture
def matrices():
    return Matrices(BACKEND, Arena(BACKEND))


def test_a_name_stands_for_one_matrix_until_it_is_released(matrices):
    first = matrices.get("x", 10, 4)
    assert first.shape == (10, 4)
    assert first.dtype == np.float32
    assert matrices.get("x", 10, 4) is first
    assert "x" in matrices
    matrices.release(["x"])
    assert "x" not in matrices
    assert matrices.get("x", 10, 4) is not first


def test_names_that_are_not_held_may_be_released(matrices):
    matrices.get("x", 10, 4)
    matrices.release(["unknown", "x", "x"])
    assert len(matrices) == 0


def test_released_memory_is_reused(matrices):
    place = address(matrices.get("x", 10, 4))
    matrices.release(["x"])
    assert address(matrices.get("y", 10, 3)) == place


def test_memory_in_use_is_never_given_out_twice(matrices):
    first, second = matrices.get("x", 10, 4), matrices.get("y", 10, 4)
    first[:], second[:] = 1, 2
    assert (first == 1).all()
    matrices.release(["x"])
    third = matrices.get("z", 10, 4)
    third[:] = 3
    assert (second == 2).all()


def test_small_matrices_do_not_occupy_large_blocks(matrices):
    place = address(matrices.get("x", 10, 100))
    matrices.release(["x"])
    assert address(matrices.get("y", 10, 4)) != place


def test_two_passes_share_an_arena_of_memory():
    arena = Arena(BACKEND)
    training, evaluation = Matrices(BACKEND, arena), Matrices(BACKEND, arena)
    place = address(training.get("x", 10, 4))
    training.release(["x"])
    assert address(evaluation.get("x", 10, 4)) == place


@given(st.integers(1, 50), st.integers(1, 70), st.sampled_from(NumberFormat))
def test_matrices_begin_at_a_cache_line(rows, columns, number_format):
    matrix = Matrices(BACKEND, Arena(BACKEND)).get("x", rows, columns, number_format)
    assert address(matrix) % 64 == 0
    assert matrix.flags.c_contiguous
    assert matrix.flags.writeable


def test_a_new_matrix_can_be_zero_even_in_used_memory(matrices):
    matrices.get("x", 10, 4).fill(7)
    matrices.release(["x"])
    fresh = matrices.get("x", 10, 4, zero=True)
    assert (fresh == 0).all()
    fresh.fill(5)
    assert (matrices.get("x", 10, 4, zero=True) == 5).all()  # only a new one


def test_the_memory_of_a_registered_matrix_is_not_reused(matrices):
    mine = np.ones((10, 4), np.float32)
    matrices.put("x", mine)
    assert matrices.get("x", 10, 4) is mine
    matrices.release(["x"])
    assert address(matrices.get("y", 10, 4)) != address(mine)
    assert (mine == 1).all()


def test_no_rows_are_possible():
    assert Matrices(BACKEND, Arena(BACKEND)).get("x", 0, 4).shape == (0, 4)


def test_concurrent_threads_get_the_same_matrix(matrices):
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: matrices.get("x", 10, 4), range(64)))
    assert all(each is found[0] for each in found)


def test_a_read_only_array_is_presented_as_a_writable_one_without_a_copy():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert BACKEND.from_host(array) is array
    array.flags.writeable = False
    alias = BACKEND.from_host(array)
    assert alias.flags.writeable
    assert address(alias) == address(array)
    np.testing.assert_array_equal(alias, array)
    assert not array.flags.writeable


MIB = 1 << 20


def test_within_the_limit_released_memory_is_reused():
    arena = BoundedArena(BACKEND, 4 * MIB)
    first = arena.take(MIB)
    place = address(first)
    arena.give(first)
    assert address(arena.take(MIB)) == place


def test_free_memory_is_returned_to_the_system_before_the_limit_is_passed():
    arena = BoundedArena(BACKEND, 4 * MIB)
    blocks = [arena.take(MIB), arena.take(MIB)]
    gone = [weakref.ref(block) for block in blocks]
    for block in blocks:
        arena.give(block)
    del block
    blocks.clear()
    arena.take(3 * MIB)  # none of the two is large enough, and there is room for one of them
    gc.collect()
    assert [each() is None for each in gone].count(True) == 1


def test_memory_for_use_is_allocated_even_beyond_the_limit():
    arena = BoundedArena(BACKEND, MIB)
    assert [arena.take(MIB).nbytes for _ in range(3)] == [MIB] * 3


def test_a_block_much_larger_than_requested_stays_free():
    arena = BoundedArena(BACKEND, 8 * MIB)
    block = arena.take(2 * MIB)
    place = address(block)
    arena.give(block)
    assert address(arena.take(MIB)) != place


def test_a_block_that_was_written_to_in_part_is_not_used_again():
    arena = BoundedArena(BACKEND, 8 * MIB)
    block = arena.take(2 * MIB, share=0.5)
    gone = weakref.ref(block)
    arena.give(block)
    del block
    gc.collect()
    assert gone() is None


def test_the_part_that_is_written_to_counts():
    arena = BoundedArena(BACKEND, 4 * MIB)
    free = arena.take(MIB)
    kept = weakref.ref(free)
    arena.give(free)
    del free
    arena.take(8 * MIB, share=0.25)
    gc.collect()
    assert kept() is not None
    arena.take(2 * MIB, share=0.75)
    gc.collect()
    assert kept() is None
