import re

import pytest

from dorylus.cluster import memory
from dorylus.training import limits

GRAPH = "communities:num_vertices=4000,num_features=64"
ASKED = ("plan-memory", GRAPH, "--hidden", "64", "--threads", "1")


@pytest.fixture(autouse=True)
def process(monkeypatch):
    """A process that takes nothing for itself."""
    monkeypatch.setattr(limits, "SLACK", 0)
    monkeypatch.setattr(memory, "private_bytes", lambda: 0)


def test_a_run_that_fits_is_told_by_kind(dorylus_program):
    code, out, _ = dorylus_program(*ASKED, "--memory", "1GiB")
    assert code == 0
    assert "fits: limit 1" in out
    for kind in ("the process as it is", "activations", "edges", "vertices", "together"):
        assert kind in out


def test_without_a_limit_the_machine_is_the_limit(dorylus_program, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 30)
    code, out, _ = dorylus_program(*ASKED)
    assert code == 0
    assert "fits: limit 1" in out


def test_a_run_that_needs_files_fits_with_spilling(dorylus_program):
    code, out, _ = dorylus_program(*ASKED, "--memory", "5MiB")
    assert code == 0
    assert "fits with spilling: limit 5" in out
    assert re.search(r"each epoch reads [1-9].* of files and writes ", out)


def test_a_run_that_does_not_fit_ends_with_one_and_the_cure(dorylus_program, tmp_path):
    code, out, _ = dorylus_program(*ASKED, "--memory", "1MiB")
    assert code == 1
    assert "does not fit: limit 1" in out
    (named,) = re.findall(r"Give memory='(\d+MiB)'", out.replace("\n", " "))
    code, out, _ = dorylus_program(*ASKED, "--memory", named)
    assert code == 0
    assert not list(tmp_path.iterdir())


def test_an_amount_that_is_none_is_refused(dorylus_program):
    code, _, err = dorylus_program(*ASKED, "--memory", "much")
    assert code == 2
    assert "memory" in err
