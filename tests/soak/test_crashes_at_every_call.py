"""As tests/integration/test_crashes.py, for every writer, every fault and every call, in memory and on disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crash_bench.preload import compiler
from crash_bench.requests import Examiner, examiner

pytestmark = [
    pytest.mark.skipif(compiler() is None, reason="the library of faults is compiled, and there is no cc"),
    pytest.mark.timeout(1800),
]

RUN = [
    "checkpoint",
    "checkpoint of the same epoch",
    "best model of the same epoch",
    "new run",
    "run.toml",
    "used.ledger and used.json",
    "metrics.json",
    "log.jsonl",
]
OTHERS = [
    "store",
    "store, replaced",
    "ingested store, replaced",
    "shards, replaced",
    "predictions",
    "exported program",
    "function package",
]


@pytest.fixture(scope="module")
def crash_examiner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examiner]:
    with examiner(tmp_path_factory.mktemp("faults")) as running:
        yield running


@pytest.mark.parametrize("writer", RUN + OTHERS)
@pytest.mark.parametrize("action", ["kill", "tear", "power cut", "full disk", "bad disk"])
def test_a_fault_at_any_call_leaves_the_old_or_the_new_content(
    crash_examiner: Examiner, writer: str, action: str
) -> None:
    found = crash_examiner.ask(writer, action)
    assert found["tried"] == found["calls"] > 0
    assert not found["problems"]


@pytest.mark.parametrize("writer", RUN + OTHERS)
def test_a_kill_at_any_call_is_safe_on_the_disk_of_the_tests_too(
    crash_examiner: Examiner, writer: str, tmp_path: Path
) -> None:
    assert not crash_examiner.ask(writer, "kill", folder=str(tmp_path))["problems"]


@pytest.mark.parametrize("writer", RUN)
@pytest.mark.parametrize("action", ["kill", "power cut", "full disk"])
def test_a_run_needs_no_exchange_of_names(crash_examiner: Examiner, writer: str, action: str) -> None:
    assert not crash_examiner.ask(writer, action, exchange=False)["problems"]
