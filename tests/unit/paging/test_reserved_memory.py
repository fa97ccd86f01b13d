from pathlib import Path

import numpy as np
import pytest

from dorylus.paging import PAGE, ReservedMemory
from dorylus.paging.reserved_memory import down, up

SIZE = 64 << 20


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


@pytest.mark.parametrize(
    ("position", "before", "after"),
    [(0, 0, 0), (1, 0, PAGE), (PAGE, PAGE, PAGE), (PAGE + 1, PAGE, 2 * PAGE), (3 * PAGE - 1, 2 * PAGE, 3 * PAGE)],
)
def test_page_boundaries(position, before, after):
    assert (down(position), up(position)) == (before, after)


@pytest.mark.parametrize("huge", [False, True])
def test_dropped_memory_is_released_and_reads_as_zeros(huge):
    window = ReservedMemory(SIZE, huge=huge)
    before = resident_bytes()
    window.bytes.fill(7)
    grown = resident_bytes() - before
    assert grown > 0.9 * SIZE
    window.drop_all()
    assert resident_bytes() - before < 0.1 * SIZE
    assert not window.bytes[:: PAGE // 2].any()


def test_half_of_a_window_of_small_pages_can_be_dropped():
    window = ReservedMemory(SIZE)
    before = resident_bytes()
    window.bytes.fill(7)
    window.drop(SIZE // 2, SIZE)
    assert 0.4 * SIZE < resident_bytes() - before < 0.6 * SIZE
    assert window.bytes[SIZE // 2 - 1] == 7
    assert window.bytes[SIZE // 2] == 0


def test_address_space_costs_nothing_until_it_is_written_to():
    before = resident_bytes()
    window = ReservedMemory(1 << 42)  # more than any current machine has
    window.bytes[1 << 41] = 1
    assert resident_bytes() - before < SIZE


def test_nothing_is_dropped_between_a_page_and_itself():
    window = ReservedMemory(3 * PAGE)
    window.bytes.fill(1)
    window.drop(PAGE, PAGE)
    assert window.bytes.all()


def test_an_array_over_a_window_starts_as_zeros_and_is_the_windows_memory():
    window = ReservedMemory(5 * 3 * 4)
    x = window.array((5, 3), np.float32)
    assert not x.any()
    x[4, 2] = 1
    assert window.bytes[: x.nbytes].view(np.float32)[-1] == 1
    assert window.bytes.size == PAGE  # whole pages


def test_a_window_of_nothing_is_an_array_of_nothing():
    assert ReservedMemory(0).array((0, 4), np.float32).shape == (0, 4)


def test_memory_is_freed_with_the_last_array():
    before = resident_bytes()
    x = ReservedMemory(SIZE).array((SIZE,), np.uint8)
    x.fill(1)
    del x
    assert resident_bytes() - before < 0.1 * SIZE
