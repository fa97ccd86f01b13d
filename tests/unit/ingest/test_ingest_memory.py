import re

import numpy as np
import pytest

import dorylus.ingest.budget as budget
import dorylus.ingest.entry_point as entry_point
from dorylus.errors import ConfigError
from dorylus.graph import Graph
from dorylus.ingest.batches import ReaderMemory
from dorylus.ingest.budget import MIB, IngestShares, check_runs, shares_of
from dorylus.ingest.numbering import MappedNumbers


@pytest.fixture(autouse=True)
def small_process(monkeypatch):
    monkeypatch.setattr(budget, "resident_bytes", lambda: 40 * MIB)


def test_the_named_minimum_is_enough_for_a_process_with_slightly_more_memory():
    """The next process of the same command uses a MiB more or less at its start."""
    with pytest.raises(ConfigError) as refused:
        shares_of(100 * MIB, resident=40 * MIB)
    (least,) = re.findall(r"give at least (\d+) MiB", str(refused.value))
    assert shares_of(int(least) * MIB, resident=43 * MIB).spool >= 64 * MIB


def test_the_parts_that_work_together_fit_into_the_limit():
    shares = shares_of(512 * MIB)
    room = (512 - 40 - 96) * MIB
    assert shares.spool == shares.merge + shares.transpose == room


def test_the_table_of_ids_and_the_order_have_their_parts():
    assert shares_of(512 * MIB).spool - shares_of(512 * MIB, ids_bytes=100 * MIB).spool == 100 * MIB
    assert shares_of(512 * MIB).spool - shares_of(512 * MIB, order_bytes=70 * MIB).spool == 70 * MIB
    assert shares_of(512 * MIB, resident=50 * MIB).spool == (512 - 50 - 96) * MIB


def test_the_named_minimum_is_enough():
    with pytest.raises(ConfigError, match=r"memory is 104,857,600 bytes \(100.0 MiB\), .*: give at least 204 MiB"):
        shares_of(100 * MIB)
    assert shares_of(200 * MIB).spool == 64 * MIB
    with pytest.raises(ConfigError, match=r"30.0 MiB of them to reorder vertices, .* give at least 235 MiB"):
        shares_of(200 * MIB, order_bytes=30 * MIB + 1)


def test_memory_for_reading_edges_is_released_before_they_are_sorted():
    held = ReaderMemory(100 * MIB, "to unpack web.feather", "write it so")
    assert shares_of(512 * MIB).spool - shares_of(512 * MIB, held=held).spool == 100 * MIB
    assert shares_of(512 * MIB, held=held, order_bytes=100 * MIB) == shares_of(512 * MIB, held=held)
    with pytest.raises(
        ConfigError, match=r"100.0 MiB of them to unpack web\.feather, .* at least 304 MiB, or write it so"
    ):
        shares_of(299 * MIB, held=held)
    assert shares_of(300 * MIB, held=held).spool == 64 * MIB


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("spooled", [60 << 30, 3 << 40])
def test_the_limit_that_is_named_for_many_edges_merges_them(directed, spooled):
    with pytest.raises(
        ConfigError, match=r"leaves 64.0 MiB to sort .* sorted runs, but 1,365 can be merged"
    ) as refused:
        check_runs(200 * MIB, shares_of(200 * MIB), spooled, directed=directed)
    named = int(str(refused.value).split()[-2])
    check_runs(named * MIB, shares_of(named * MIB), spooled, directed=directed)
    assert shares_of(named * MIB).num_runs(spooled, directed=directed) > 1000, "and is not far more than needed"


def test_edges_that_make_as_many_runs_as_can_be_merged_pass():
    shares = IngestShares(spool=3 * 12288, merge=5 * 12288, transpose=3 * 12288)
    check_runs(MIB, shares, 5 * 12288, directed=True)
    with pytest.raises(ConfigError, match="makes 6 sorted runs, but 5 can be merged"):
        check_runs(MIB, shares, 5 * 12288 + 1, directed=True)


def test_memory_that_the_process_already_uses_is_counted(monkeypatch):
    monkeypatch.undo()
    assert MIB < budget.resident_bytes() < 1 << 40


def test_the_named_minimum_is_enough_where_ids_take_part_of_it():
    with pytest.raises(ConfigError) as refused:
        shares_of(200 << 20, resident=100 << 20, ids_bytes=50 << 20)
    (least,) = re.findall(r"give at least (\d+) MiB", str(refused.value))
    memory_bytes = int(least) << 20
    assert shares_of(memory_bytes, resident=100 << 20, ids_bytes=memory_bytes // 4).spool > 0


@pytest.mark.parametrize("reorder", ["none", "degree"])
@pytest.mark.parametrize("kind", ["numbers", "names", "listed"])
def test_the_limit_that_is_named_when_ids_do_not_fit_is_enough(kind, reorder, monkeypatch, tmp_path):
    """The part for ids is so small here that few ids fill it."""
    for module in (budget, entry_point):
        monkeypatch.setattr(module, "IDS_SHARE", 2000)
    ids = np.random.default_rng(0).permutation(200_000)[:90_000] * 1_000_003
    text = "{0}\t{1}\n" if kind != "names" else "vertex-{0}\tvertex-{1}\n"
    (tmp_path / "edges.txt").write_text("".join(text.format(*pair) for pair in zip(ids, ids[::-1], strict=True)))
    options = {"ids": "strings" if kind == "names" else "map", "reorder": reorder}
    if kind == "listed":
        options["vertices"] = ids
    with pytest.raises(ConfigError, match=r"there are about 9\d,\d{3} different ids, .*: give at least") as refused:
        Graph.ingest(tmp_path / "edges.txt", tmp_path / "store", memory="1GiB", **options)
    assert [each.name for each in tmp_path.iterdir()] == ["edges.txt"]
    (least,) = re.findall(r"give at least (\d+) MiB", str(refused.value))
    assert 1024 < int(least) < 10_000
    graph = Graph.ingest(tmp_path / "edges.txt", tmp_path / "store", memory=f"{least}MiB", **options)
    assert graph.num_vertices == 90_000


def test_the_minimum_limit_is_reported_with_the_number_of_ids_it_has_room_for():
    with pytest.raises(ConfigError, match=r"give at least 272 MiB, which has room for 4,[\d,]+ different ids\.$"):
        shares_of(200 * MIB, ids_bytes=50 * MIB, ids_for=MappedNumbers.bytes_for)
    room = int(re.findall(r"room for ([\d,]+)", refusal_of(200 * MIB))[0].replace(",", ""))
    assert MappedNumbers.bytes_for(room) <= 272 * MIB // 4 < MappedNumbers.bytes_for(room + 1)


def refusal_of(memory_bytes: int) -> str:
    with pytest.raises(ConfigError) as refused:
        shares_of(memory_bytes, ids_bytes=memory_bytes // 4, ids_for=MappedNumbers.bytes_for)
    return str(refused.value)
