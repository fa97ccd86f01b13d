"""The comparison of two checkouts: its table has all runs, and finds a difference of one bit."""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def import_from_root(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)


def row(before: list[float], after: list[float], **differing: str) -> dict[str, Any]:
    same = {"weights": "w", "predictions": "p"}
    reports = [{"losses": [loss.hex() for loss in losses]} | same for losses in (before, after)]
    return {
        "run": "gcn",
        "pairs": [(reports[0], reports[1] | differing)],
        "turns": [[(0.2, 0.1), (0.1, 0.1), (0.1, 0.2)]],
    }


def test_the_table_has_its_fourteen_runs():
    from benchmarks.against import RUNS

    settings = [run.settings for run in RUNS.values()]
    assert len(RUNS) == 14
    assert {run.model for run in RUNS.values()} == {"gcn", "gat", "sage", "gin", "edge", "mixed"}
    assert {each.get("servers", 1) for each in settings} >= {1, 4}
    assert {each.get("mode", "pipe") for each in settings} == {"pipe", "no_pipe", "async"}
    assert any("memory" in each for each in settings)
    assert any(each.get("precision") == "bf16" for each in settings)
    assert any(run.options.get("dropout") == 0.0 for run in RUNS.values())  # a gather that is made once
    assert any(each.get("pool") == "processes" for each in settings)
    assert any(each.get("cluster") == "ray" for each in settings)
    assert any(run.resumed for run in RUNS.values())


def test_a_loss_that_differs_in_its_last_bit_is_found():
    from benchmarks.against import agreement, identical

    assert identical(row([0.5, 0.25], [0.5, 0.25]))
    changed = row([0.5, 0.25], [0.5, math.nextafter(0.25, 1.0)])
    assert agreement(changed) == ("no, from epoch 2", "yes", "yes")
    assert not identical(changed)


def test_a_run_of_fewer_epochs_is_found():
    from benchmarks.against import agreement

    assert agreement(row([0.5, 0.25], [0.5])) == ("no, from epoch 2", "yes", "yes")


@pytest.mark.parametrize("what", ["weights", "predictions"])
def test_another_digest_is_found(what):
    from benchmarks.against import identical

    assert not identical(row([0.5], [0.5], **{what: "other"}))


def test_a_weight_that_differs_in_one_bit_has_another_digest():
    from benchmarks.against_worker import digest

    weights = np.ones((3, 4), dtype=np.float32)
    changed = weights.copy()
    changed.view(np.uint32)[2, 3] ^= 1
    assert digest([("w", weights)]) == digest([("w", weights.copy())])
    assert digest([("w", weights)]) != digest([("w", changed)])
    assert digest([("w", weights)]) != digest([("w", weights.T)])


def test_the_last_line_counts_identical_runs_and_gives_the_median_ratio():
    from benchmarks.against import summary

    rows = [row([0.5], [0.5]), row([0.5], [0.75]), {"run": "gin", "pairs": [], "turns": [], "failed": "after: ..."}]
    assert summary(rows) == "1 of 3 runs bit-identical; epoch time ratio median 1.000"
    assert summary(rows[2:]) == "0 of 1 runs bit-identical; epoch time ratio not measured"


def test_two_interpreters_that_load_the_same_files_are_refused():
    from benchmarks.against import check_apart

    options = argparse.Namespace(before="one/python", after="other/python")
    check_apart(options, ["a/dorylus", "a/native.so"], ["b/dorylus", "b/native.so"])
    with pytest.raises(SystemExit, match=r"both load a/native\.so"):
        check_apart(options, ["a/dorylus", "a/native.so"], ["b/dorylus", "a/native.so"])
    same = argparse.Namespace(before=sys.executable, after=sys.executable)
    check_apart(same, ["a/dorylus"], ["a/dorylus"])
