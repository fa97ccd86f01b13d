import numpy as np

from dorylus.training import memory

MIB = 2**20


def test_a_large_array_shows_in_the_peak_after_it_is_gone():
    memory.reset_peak()
    before = memory.peak_bytes()
    array = np.ones(64 * MIB, np.uint8)
    during = memory.resident_bytes()
    del array
    assert memory.peak_bytes() >= before + 48 * MIB
    assert memory.peak_bytes() >= during - 8 * MIB


def test_a_new_peak_begins_where_the_memory_stands_now():
    array = np.ones(64 * MIB, np.uint8)
    high = memory.peak_bytes()
    del array
    memory.reset_peak()
    assert memory.resident_bytes() - 8 * MIB <= memory.peak_bytes() <= high - 32 * MIB


def test_a_system_that_does_not_tell_is_asked_otherwise(monkeypatch, tmp_path):
    for place in ("_STATUS", "_CLEAR"):
        monkeypatch.setattr(memory, place, tmp_path / "absent" / place)
    memory.reset_peak()
    assert memory.peak_bytes() > 10 * MIB


def test_the_resident_size_is_a_plausible_number_of_bytes():
    assert 10 * MIB < memory.resident_bytes() <= memory.peak_bytes() + 8 * MIB
