import json
from pathlib import Path

import numpy as np
import pytest

from dorylus.errors import DataError
from dorylus.runs import JsonlSink, read_log, run_log


def write(path, *records, append=False):
    sink = JsonlSink(path, append=append)
    for record in records:
        sink.write(record)
    sink.close()


FIRST, SECOND = {"kind": "epoch", "epoch": 1}, {"kind": "epoch", "epoch": 2}


def test_written_records_read_back_equal(tmp_path):
    record = {"kind": "spans", "spans": [["∇AV", 1, 0, 2, 0.125, 0.1]], "none": None, "deep": {"a": [True, "é"]}}
    write(tmp_path / "log.jsonl", record)
    assert read_log(tmp_path / "log.jsonl") == [record]


def test_a_record_is_on_disk_before_the_sink_is_closed(tmp_path):
    sink = JsonlSink(tmp_path / "log.jsonl")
    sink.write(FIRST)
    assert read_log(tmp_path / "log.jsonl") == [FIRST]
    sink.close()


def test_numbers_that_are_not_finite_become_null_in_strict_json(tmp_path):
    write(
        tmp_path / "log.jsonl", {"kind": "epoch", "loss": float("nan"), "more": [np.float32("inf"), (1, 2.5)], "n": 1}
    )
    text = (tmp_path / "log.jsonl").read_text()
    record = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert record == {"kind": "epoch", "loss": None, "more": [None, [1, 2.5]], "n": 1}


def test_numpy_numbers_arrays_and_paths_are_written_as_plain_data(tmp_path):
    record = {"kind": "x", "n": np.int64(3), "f": np.float32(0.5), "a": np.arange(3), "p": Path("runs/a")}
    write(tmp_path / "log.jsonl", record)
    assert read_log(tmp_path / "log.jsonl") == [{"kind": "x", "n": 3, "f": 0.5, "a": [0, 1, 2], "p": "runs/a"}]


def test_a_value_that_json_cannot_hold_is_a_programming_error(tmp_path):
    sink = JsonlSink(tmp_path / "log.jsonl")
    with pytest.raises(TypeError, match="a set does not go into the run log"):
        sink.write({"kind": "x", "s": {1}})
    sink.close()


def test_a_new_log_replaces_an_old_one_unless_it_appends(tmp_path):
    path = tmp_path / "log.jsonl"
    write(path, FIRST)
    write(path, SECOND)
    assert read_log(path) == [SECOND]
    write(path, FIRST, append=True)
    assert read_log(path) == [SECOND, FIRST]


def test_appending_to_no_log_begins_one(tmp_path):
    write(tmp_path / "log.jsonl", FIRST, append=True)
    assert read_log(tmp_path / "log.jsonl") == [FIRST]


def lines(*records):
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@pytest.mark.parametrize("cut", range(1, len(lines(SECOND)) + 1))
def test_a_log_killed_at_any_byte_can_be_read_and_continued(tmp_path, cut):
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines(FIRST, SECOND)[:-cut])
    survived = [FIRST, SECOND] if cut == 1 else [FIRST]
    assert read_log(path) == survived
    write(path, {"kind": "run"}, append=True)
    assert read_log(path) == [*survived, {"kind": "run"}]


def test_a_log_that_cannot_be_opened_is_an_error_with_the_cure(tmp_path):
    with pytest.raises(DataError, match=r"cannot write the run log .*choose a run_dir that can be written") as refused:
        JsonlSink(tmp_path / "nowhere" / "log.jsonl")
    assert refused.value.exit_code == 2, "another run_dir can be given"


def test_a_full_disk_is_an_error_with_the_cure():
    sink = JsonlSink("/dev/full")
    with pytest.raises(DataError, match="No space left") as failed:
        sink.write(FIRST)
    sink.close()
    assert failed.value.exit_code == 1, "the run failed: the request was valid"


def test_a_record_that_did_not_fit_leaves_no_part_of_itself(tmp_path):
    """Otherwise the next record, when there is room again, would start in the middle of its line."""
    sink = JsonlSink(tmp_path / "log.jsonl")
    sink.write(FIRST)
    file = sink._file

    class Full:
        def write(self, text):
            return file.write(text[:10])

        def __getattr__(self, name):
            return getattr(file, name)

    sink._file = Full()
    with pytest.raises(DataError, match="the disk is full"):
        sink.write(SECOND)
    sink._file = file
    sink.write(SECOND)
    sink.close()
    assert read_log(tmp_path / "log.jsonl") == [FIRST, SECOND]


def test_a_log_that_something_else_cuts_short_has_no_hole(tmp_path):
    sink = JsonlSink(tmp_path / "log.jsonl")
    sink.write(FIRST)
    (tmp_path / "log.jsonl").write_bytes(b"")
    sink.write(SECOND)
    sink.close()
    assert (tmp_path / "log.jsonl").read_bytes() == lines(SECOND)


def test_a_log_of_zeros_is_mended_and_takes_no_memory(tmp_path, fill_with_zeros, little_memory):
    fill_with_zeros(tmp_path / "log.jsonl")
    with little_memory():
        write(tmp_path / "log.jsonl", FIRST, append=True)
    assert (tmp_path / "log.jsonl").read_bytes() == lines(FIRST)


@pytest.mark.parametrize("torn", [b"x" * (3 << 20), b"\0" * (3 << 20), b'{"kind": "ep'])
def test_a_torn_line_of_any_length_is_cut_off(tmp_path, torn):
    (tmp_path / "log.jsonl").write_bytes(lines(FIRST) + torn)
    write(tmp_path / "log.jsonl", SECOND, append=True)
    assert (tmp_path / "log.jsonl").read_bytes() == lines(FIRST, SECOND)


def test_a_record_that_is_longer_than_a_line_may_be_is_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(run_log, "MOST_LINE_BYTES", 200)
    spans = {"kind": "spans", "t": 1.5, "epoch": 1, "spans": [[0] * 100]}
    write(tmp_path / "log.jsonl", FIRST, spans, SECOND)
    size = len(lines(spans))
    left_out = {"kind": "left_out", "t": 1.5, "epoch": 1, "record": "spans", "bytes": size}
    assert read_log(tmp_path / "log.jsonl") == [FIRST, left_out, SECOND]
