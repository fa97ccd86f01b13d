"""When the progress of a set-up is reported: not in its first two seconds, then once a second."""

import numpy as np
import pytest

import dorylus
from dorylus.progress import StageProgress
from dorylus.runs import MemorySink
from dorylus.training import run_records
from dorylus.training.run_records import SetupProgress


class RecordedProgress:
    """A clock, and the records that were written."""

    def __init__(self):
        self.now, self.records = 0.0, []
        self.setup_progress = SetupProgress(lambda kind, **fields: self.records.append({"kind": kind, **fields}), self)

    def __call__(self):
        return self.now

    def at(self, now, stage, done):
        self.now = now
        self.setup_progress(StageProgress(stage, done, 100))

    def finished(self, now):
        self.now = now
        self.setup_progress.finished()


def test_a_short_set_up_is_not_reported():
    recorded = RecordedProgress()
    for tenth in range(19):
        recorded.at(5 + tenth / 10, "reading", tenth)
    recorded.finished(7)
    assert recorded.records == []


def test_a_long_set_up_is_reported_once_a_second_with_the_seconds_of_its_stage():
    recorded = RecordedProgress()
    for now, stage, done in [(5, "a", 0), (6, "a", 50), (6.5, "b", 0), (7, "b", 10), (7.5, "b", 20), (8, "b", 30)]:
        recorded.at(now, stage, done)
    recorded.finished(9)
    assert recorded.records == [
        {"kind": "set_up", "stage": "b", "done_bytes": 10, "total_bytes": 100, "seconds": 0.5},
        {"kind": "set_up", "stage": "b", "done_bytes": 30, "total_bytes": 100, "seconds": 1.5},
        {"kind": "set_up", "stage": None, "seconds": 4.0},
    ]


def test_its_end_is_reported_once():
    recorded = RecordedProgress()
    recorded.at(0, "a", 0)
    recorded.at(3, "a", 50)
    for now in (4, 5, 6):
        recorded.finished(now)
    assert [record["stage"] for record in recorded.records] == ["a", None]


def test_another_set_up_starts_from_zero():
    recorded = RecordedProgress()
    recorded.at(0, "a", 0)
    recorded.at(3, "a", 50)
    recorded.finished(4)
    recorded.at(10, "a", 0)
    recorded.at(11, "a", 5)
    assert len(recorded.records) == 2


@pytest.fixture
def stored(tmp_path):
    """A directed store with out-edges, features and labels."""
    rng = np.random.default_rng(2)
    source, destination = rng.integers(0, 400, (2, 3000))
    for name, content in {"x": rng.standard_normal((400, 12), dtype=np.float32), "y": rng.integers(0, 3, 400)}.items():
        np.save(tmp_path / f"{name}.npy", content)
    np.save(tmp_path / "train.npy", np.ones(400, np.bool_))
    files = {"features": tmp_path / "x.npy", "labels": tmp_path / "y.npy", "train": tmp_path / "train.npy"}
    return dorylus.Graph.ingest(
        (source, destination), tmp_path / "store", undirected=False, num_vertices=400, memory="4GiB", **files
    )


@pytest.mark.usefixtures("nothing_fits")
def test_every_stage_of_a_run_is_reported_before_its_first_epoch(stored, monkeypatch):
    for name in ("SILENT_S", "EVERY_S"):
        monkeypatch.setattr(run_records, name, 0.0)
    sink = MemorySink()
    model = dorylus.gcn(hidden=8, dropout=0.0)
    dorylus.train(stored, model, memory="4GiB", epochs=2, threads=1, sinks=[sink])
    kinds = [record["kind"] for record in sink.records if record["kind"] in ("set_up", "epoch")]
    stages = [record["stage"] for record in sink.records if record["kind"] == "set_up"]
    assert kinds == ["set_up"] * len(stages) + ["epoch"] * 2
    assert list(dict.fromkeys(stages)) == [
        "reading the edges",
        "copying the edges, with self loops",
        "gathering the features",
        "checking the out-edges",
        "copying the out-edges, with self loops",
        None,
    ]


def test_a_run_without_a_limit_reports_no_set_up_and_no_files(stored):
    sink = MemorySink()
    dorylus.train(stored, dorylus.gcn(hidden=8), epochs=1, threads=1, sinks=[sink])
    assert "set_up" not in [record["kind"] for record in sink.records]
    assert all("files" not in record for record in sink.records if record["kind"] == "epoch")
