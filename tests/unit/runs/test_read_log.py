import json

import pytest

from dorylus.errors import DataError
from dorylus.runs import current, last_time, read_log, run_log


def test_a_missing_log_is_an_error_with_the_cure(tmp_path):
    with pytest.raises(DataError, match=r"No such file.*Give the log\.jsonl of a run folder"):
        read_log(tmp_path / "log.jsonl")


def test_an_empty_log_has_no_records(tmp_path):
    (tmp_path / "log.jsonl").touch()
    assert read_log(tmp_path / "log.jsonl") == []


def test_a_bad_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"kind": "run"}\nnonsense\n{"kind": "stop"}\n')
    with pytest.raises(DataError, match="line 2 of the run log"):
        read_log(path)


def epoch(number, loss):
    return {"kind": "epoch", "epoch": number, "loss": loss}


def test_epochs_trained_again_after_a_crash_count_once():
    log = [
        {"kind": "run", "resumed_from": None},
        epoch(1, 0.9),
        epoch(2, 0.8),
        epoch(3, 0.7),
        {"kind": "run", "resumed_from": 1},
        epoch(2, 0.85),
    ]
    assert [record["loss"] for record in current(log) if record["kind"] == "epoch"] == [0.9, 0.85]


def test_the_result_of_a_run_that_was_resumed_later_no_longer_counts():
    log = [epoch(1, 0.9), {"kind": "result"}, {"kind": "run", "resumed_from": 1}, epoch(2, 0.8)]
    assert [record["kind"] for record in current(log)] == ["epoch", "run", "epoch"]


def test_a_run_resumed_before_its_first_checkpoint_starts_again():
    log = [{"kind": "run", "resumed_from": None}, epoch(1, 0.9), {"kind": "run", "resumed_from": 0}, epoch(1, 0.9)]
    assert len([record for record in current(log) if record["kind"] == "epoch"]) == 1


def test_a_log_continues_from_the_time_of_its_last_complete_record(tmp_path):
    path = tmp_path / "log.jsonl"
    assert last_time(path) == 0.0
    path.write_text('{"kind": "run", "t": 0.5}\n{"kind": "epoch", "t": 2.5}\n{"kind": "ep')
    assert last_time(path) == 2.5


HOLE = b'{"kind": "run", "t": 0.5}\n' + b"\0" * 300 + b'{"kind": "epoch", "t": 2.5}\n'


def test_a_hole_in_a_log_is_passed_over(tmp_path):
    """Two processes that wrote one log left zero bytes in it, and so may a power cut."""
    path = tmp_path / "log.jsonl"
    for tail in (b"", b"\0" * 100, b"\0\n"):
        path.write_bytes(HOLE + tail)
        assert [record["kind"] for record in read_log(path)] == ["run", "epoch"]


def test_a_log_with_lines_that_are_no_records_can_be_continued(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        HOLE + b'{"kind": "ep{"kind": "run"}\n[1]\n{"kind": "x", "t": "late"}\n{"t": 1e999}\n' + b"[" * 9999
    )
    assert last_time(path) == 2.5


def test_a_log_continues_from_its_latest_time_also_when_that_is_not_the_last(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"kind": "run", "t": 7.5}\n{"kind": "epoch", "t": 2.5}\n')
    assert last_time(tmp_path / "log.jsonl") == 7.5


@pytest.fixture
def short_lines(monkeypatch):
    """A line of a log has at most 3 MiB."""
    monkeypatch.setattr(run_log, "MOST_LINE_BYTES", 3 << 20)


@pytest.mark.usefixtures("short_lines")
def test_a_log_of_zeros_is_refused_before_it_is_in_memory(tmp_path, fill_with_zeros, little_memory):
    fill_with_zeros(tmp_path / "log.jsonl")
    with little_memory(), pytest.raises(DataError, match=r"line 1 of the run log .* is longer than 3,145,728 bytes"):
        read_log(tmp_path / "log.jsonl")


@pytest.mark.usefixtures("short_lines")
def test_a_run_with_a_log_of_zeros_is_resumed_and_takes_no_memory_for_it(tmp_path, fill_with_zeros, little_memory):
    fill_with_zeros(tmp_path / "log.jsonl")
    with little_memory():
        assert last_time(tmp_path / "log.jsonl") == 0.0


@pytest.mark.usefixtures("short_lines")
def test_a_line_that_is_too_long_is_named_and_the_run_can_be_resumed(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"kind": "run", "t": 0.5}\n' + b"x" * (4 << 20) + b'\n{"kind": "epoch", "t": 2.5}\n')
    with pytest.raises(DataError, match=r"line 2 of the run log .* is longer than .* Remove that line"):
        read_log(path)
    assert last_time(path) == 2.5


def test_a_record_longer_than_one_read_is_read_completely(tmp_path):
    record = {"kind": "spans", "text": "x" * (5 << 19)}
    (tmp_path / "log.jsonl").write_text(json.dumps(record) + "\n" + json.dumps(record))
    assert read_log(tmp_path / "log.jsonl") == [record, record]


def test_a_time_that_no_clock_has_is_passed_over(tmp_path):
    (tmp_path / "log.jsonl").write_text(f'{{"t": 2.5}}\n{{"t": {10**400}}}\n')
    assert last_time(tmp_path / "log.jsonl") == 2.5
