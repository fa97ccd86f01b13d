import mmap
import os

import pytest

from dorylus import process_memory

MIB = 2**20


def fresh_pages(count: int) -> mmap.mmap:
    """Allocates bytes that the process did not hold before: an allocator may reuse freed pages, which raise no peak."""
    pages = mmap.mmap(-1, count)
    pages.write(b"\1" * count)
    return pages


def test_a_large_array_shows_in_the_peak_after_it_is_gone():
    process_memory.reset_peak()
    before = process_memory.peak_bytes()
    pages = fresh_pages(64 * MIB)
    during = process_memory.resident_bytes()
    pages.close()
    assert process_memory.peak_bytes() >= before + 48 * MIB
    assert process_memory.peak_bytes() >= during - 8 * MIB


def test_a_new_peak_begins_where_the_memory_stands_now():
    process_memory.reset_peak()
    pages = fresh_pages(64 * MIB)
    high = process_memory.peak_bytes()
    pages.close()
    process_memory.reset_peak()
    assert process_memory.resident_bytes() - 8 * MIB <= process_memory.peak_bytes() <= high - 32 * MIB


def test_a_system_without_proc_status_is_read_from_another_source(monkeypatch, tmp_path):
    for place in ("_STATUS", "_CLEAR"):
        monkeypatch.setattr(process_memory, place, tmp_path / "absent" / place)
    process_memory.reset_peak()
    assert process_memory.peak_bytes() > 10 * MIB


def test_the_resident_size_is_a_plausible_number_of_bytes():
    assert 10 * MIB < process_memory.resident_bytes() <= process_memory.peak_bytes() + 8 * MIB


def test_mapped_files_are_a_part_of_what_is_resident():
    resident, mapped = process_memory.resident_and_mapped_bytes()
    assert 0 < mapped < resident


def test_memory_that_was_freed_but_kept_by_the_allocator_is_returned_to_the_system():
    blocks = [bytearray(64 * 1024) for _ in range(1024)]  # too small for mappings of their own
    last = bytearray(64 * 1024)  # which keeps the heap from shrinking
    held = process_memory.private_bytes()
    blocks.clear()
    process_memory.give_back()
    assert process_memory.private_bytes() < held - 32 * MIB
    assert len(last) == 64 * 1024


@pytest.fixture
def system(monkeypatch, tmp_path):
    """The folder of /proc and /sys, where a system reports its memory; it is empty at first."""
    monkeypatch.setattr(process_memory, "private_bytes", lambda: 5 * MIB)
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def test_free_memory_and_memory_already_held_are_available(system):
    (system / "proc/meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:  2048 kB\n")
    assert process_memory.free_bytes(system) == process_memory.available_bytes(system) == 7 * MIB


@pytest.mark.parametrize(("limit", "available"), [(3 * MIB, 3 * MIB), ("max", 7 * MIB), (90 * MIB, 7 * MIB)])
def test_a_control_group_limits_the_available_memory(system, limit, available):
    (system / "proc/meminfo").write_text("MemAvailable:  2048 kB\n")
    (system / "proc/self/cgroup").write_text("0::/job\n")
    (system / "sys/fs/cgroup/job").mkdir(parents=True)
    (system / "sys/fs/cgroup/job/memory.max").write_text(f"{limit}\n")
    assert process_memory.available_bytes(system) == available


def test_a_system_without_reports_has_all_memory_available_and_an_unknown_free_amount(system):
    assert process_memory.free_bytes(system) is None
    assert process_memory.available_bytes(system) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_this_system_reports_its_free_memory():
    free = process_memory.free_bytes()
    assert free is not None
    assert process_memory.private_bytes() <= free <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
