"""Every writer of files, killed at each system call by which it changes them, leaves the old state or the new one.

What is found is listed in docs/reliability.md. Long writers are killed at a few calls here, at all of them in
tests/soak.
"""

from collections.abc import Iterator

import pytest

from crash_bench.preload import compiler
from crash_bench.requests import Examiner, examiner

pytestmark = pytest.mark.skipif(compiler() is None, reason="the library of faults is compiled, and there is no cc")

SHORT = [
    "checkpoint",
    "checkpoint of the same epoch",
    "new run",
    "run.toml",
    "used.ledger and used.json",
    "log.jsonl",
    "exported program",
    "function package",
]
LONG = ["store, replaced", "ingested store, replaced", "shards, replaced", "predictions"]


@pytest.fixture(scope="module")
def crash_examiner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examiner]:
    with examiner(tmp_path_factory.mktemp("faults")) as running:
        yield running


@pytest.mark.parametrize("writer", SHORT)
def test_a_kill_at_any_call_leaves_the_old_or_the_new_content_and_the_next_writer_cleans_up(
    crash_examiner: Examiner, writer: str
) -> None:
    found = crash_examiner.ask(writer, "kill")
    assert found["tried"] == found["calls"] > 0
    assert not found["problems"]


@pytest.mark.parametrize("writer", LONG)
def test_a_kill_at_some_of_many_calls_leaves_the_old_or_the_new_content(crash_examiner: Examiner, writer: str) -> None:
    found = crash_examiner.ask(writer, "kill", most=6)
    assert found["tried"] > 4
    assert not found["problems"]


@pytest.mark.parametrize(
    ("writer", "action"),
    [
        ("checkpoint of the same epoch", "power cut"),
        ("metrics.json", "power cut"),
        ("metrics.json", "tear"),
        ("used.ledger and used.json", "tear"),
        ("run.toml", "full disk"),
    ],
)
def test_a_power_cut_a_torn_write_or_a_full_disk_leaves_the_old_or_the_new_content(
    crash_examiner: Examiner, writer: str, action: str
) -> None:
    assert not crash_examiner.ask(writer, action)["problems"]


def test_a_checkpoint_is_never_missing_where_two_names_cannot_be_exchanged(crash_examiner: Examiner) -> None:
    found = crash_examiner.ask("checkpoint of the same epoch", "kill", exchange=False)
    assert not found["problems"]
    assert found["calls"] > crash_examiner.ask("checkpoint of the same epoch", "kill", most=1)["calls"], (
        "nothing was refused"
    )
