import pytest

from dorylus.errors import ConfigError
from dorylus.graph.ingest import memory
from dorylus.graph.ingest.memory import MIB, shares_of, space_for


def test_the_parts_that_work_together_fit_into_the_limit(monkeypatch):
    monkeypatch.setattr(memory, "resident_bytes", lambda: 40 * MIB)
    shares = shares_of(512 * MIB)
    room = (512 - 40 - 96) * MIB
    assert shares.spool == shares.merge + shares.transpose == room


def test_the_table_of_ids_has_its_part(monkeypatch):
    monkeypatch.setattr(memory, "resident_bytes", lambda: 40 * MIB)
    assert shares_of(512 * MIB).spool - shares_of(512 * MIB, ids_bytes=100 * MIB).spool == 100 * MIB


def test_the_least_limit_that_is_named_is_enough(monkeypatch):
    monkeypatch.setattr(memory, "resident_bytes", lambda: 40 * MIB)
    with pytest.raises(ConfigError, match=r"memory=104,857,600 bytes \(100.0 MiB\), .*: give at least 200.0 MiB"):
        shares_of(100 * MIB)
    assert shares_of(200 * MIB).spool == 64 * MIB


def test_what_the_process_has_is_known():
    assert MIB < memory.resident_bytes() < 1 << 40


@pytest.mark.parametrize(("weighted", "undirected", "each"), [(False, False, 12), (False, True, 24), (True, False, 20)])
def test_space_is_the_scratch_file_and_the_array(weighted, undirected, each):
    assert space_for(1000, weighted=weighted, undirected=undirected) == 1000 * each
