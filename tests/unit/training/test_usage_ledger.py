import pytest

from dorylus.errors import DataError
from dorylus.runs import ledger
from dorylus.runs.ledger import UsageLedger, newest, read_ledger


def used(amount, requests=0):
    functions = {"training": {"requests": requests}} if requests else {}
    return {"server_ns": {"graph": {"training": amount}}, "functions": functions, "moved_bytes": {}}


@pytest.fixture
def silent(monkeypatch):
    """A ledger that is written only on request."""
    monkeypatch.setattr(ledger, "EVERY_S", 1e6)


def written(path, *amounts):
    given = iter(amounts)
    kept = UsageLedger(path, lambda ahead_s: used(next(given, amounts[-1])))
    for _ in amounts:
        kept.write()
    kept.close()


@pytest.mark.parametrize("amounts", [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)])
def test_the_last_entry_is_read(tmp_path, silent, amounts):
    written(tmp_path / "ledger", *amounts)
    assert read_ledger(tmp_path / "ledger") == used(amounts[-1])


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_withdrawn_amount_is_in_no_entry(tmp_path, silent, times):
    kept = UsageLedger(tmp_path / "ledger", lambda ahead_s: used(100))
    for _ in range(times):
        kept.write()
    kept.restore_previous(used(7))
    kept.close()
    assert read_ledger(tmp_path / "ledger") == used(7)


def test_no_ledger_has_nothing_in_it(tmp_path):
    assert read_ledger(tmp_path / "ledger") is None
    (tmp_path / "ledger").touch()
    assert read_ledger(tmp_path / "ledger") is None


def test_the_size_of_a_ledger_does_not_grow(tmp_path, silent):
    written(tmp_path / "ledger", *range(1000))
    assert (tmp_path / "ledger").stat().st_size == 2 * 4096


def test_a_run_that_is_killed_has_half_an_interval_ahead_on_its_bill_and_one_that_is_closed_has_not(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(ledger, "EVERY_S", 1e6)
    kept = UsageLedger(tmp_path / "ledger", lambda ahead_s: used(100 + ahead_s))
    kept.write()
    assert read_ledger(tmp_path / "ledger") == used(100 + 5e5)
    kept.close()
    assert read_ledger(tmp_path / "ledger") == used(100)


@pytest.mark.parametrize("cut", [0, 1, 8, 9, 30, 40])
def test_an_entry_that_a_kill_cut_off_leaves_the_one_before(tmp_path, silent, cut):
    """Its beginning is new, the rest belongs to the old entry: also where both are well-formed."""
    path = tmp_path / "ledger"
    path.write_bytes(ledger._entry(used(100)) + ledger._entry(used(200)))
    torn = ledger._entry(used(300))[:cut] + path.read_bytes()[cut:4096]
    path.write_bytes(torn + path.read_bytes()[4096:])
    assert read_ledger(path) == used(200)


def test_the_entry_with_more_in_it_was_written_later():
    assert newest([used(1), used(3), used(2)]) == used(3)
    assert newest([used(3), used(3, requests=1)]) == used(3, requests=1)
    assert newest([]) is None


@pytest.mark.parametrize("content", [b"\0" * 8192, b"00000000 {}", b"zzzzzzzz {}", b"\xff" * 5000, b"[" * 8192])
def test_a_file_that_is_no_ledger_is_ignored(tmp_path, content):
    (tmp_path / "ledger").write_bytes(content)
    assert read_ledger(tmp_path / "ledger") is None


def test_a_ledger_that_cannot_be_written_is_reported_in_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"cannot write the usage of the run.*No such file"):
        UsageLedger(tmp_path / "nowhere" / "ledger", lambda ahead_s: used(1))


def test_entries_after_the_end_are_not_written(tmp_path):
    """The descriptor of the closed file may belong to another file by then."""
    ledger = UsageLedger(tmp_path / "used.ledger", lambda ahead_s: {"service": None})
    ledger.close()
    with open(tmp_path / "other", "w+b") as other:
        other.write(b"not ours")
        other.flush()
        ledger.write()
        other.seek(0)
        assert other.read() == b"not ours"
