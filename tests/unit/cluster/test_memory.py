import mmap

from dorylus.cluster import memory

MIB = 2**20


def fresh_pages(count: int) -> mmap.mmap:
    """So many bytes the process did not hold before: an allocator may hand out freed pages, which raise no peak."""
    pages = mmap.mmap(-1, count)
    pages.write(b"\1" * count)
    return pages


def test_a_large_array_shows_in_the_peak_after_it_is_gone():
    memory.reset_peak()
    before = memory.peak_bytes()
    pages = fresh_pages(64 * MIB)
    during = memory.resident_bytes()
    pages.close()
    assert memory.peak_bytes() >= before + 48 * MIB
    assert memory.peak_bytes() >= during - 8 * MIB


def test_a_new_peak_begins_where_the_memory_stands_now():
    memory.reset_peak()
    pages = fresh_pages(64 * MIB)
    high = memory.peak_bytes()
    pages.close()
    memory.reset_peak()
    assert memory.resident_bytes() - 8 * MIB <= memory.peak_bytes() <= high - 32 * MIB


def test_a_system_that_does_not_tell_is_asked_otherwise(monkeypatch, tmp_path):
    for place in ("_STATUS", "_CLEAR"):
        monkeypatch.setattr(memory, place, tmp_path / "absent" / place)
    memory.reset_peak()
    assert memory.peak_bytes() > 10 * MIB


def test_the_resident_size_is_a_plausible_number_of_bytes():
    assert 10 * MIB < memory.resident_bytes() <= memory.peak_bytes() + 8 * MIB
