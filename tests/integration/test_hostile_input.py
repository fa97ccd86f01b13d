"""Hostile input that is well-formed: a few hundred cases of each kind, and those that once broke something.

``make soak`` runs a million. Case 7 of a kind, say, is run again by hostile.campaign.run({kind: 1}, folder, first=7).
"""

from pathlib import Path

import pytest

from dorylus.errors import DorylusError
from hostile import campaign, corpus
from hostile.kinds import KINDS

CASES = {
    "frames": 600, "pieces": 300, "answers": 400, "pushes": 300, "requests": 400, "invocations": 300, "programs": 300,
    "cached programs": 200, "run.toml": 150, "run logs": 200, "checkpoints": 150, "stores": 150, "text edges": 50,
    "npy edges": 50, "arrow edges": 50, "parquet edges": 50,
}  # fmt: skip


def test_no_hostile_input_breaks_what_reads_it(tmp_path: Path) -> None:
    assert CASES.keys() == KINDS.keys()
    reports = campaign.run(CASES, tmp_path)
    assert [line for report in reports for line in report.broken] == []
    assert [report.kind for report in reports if report.cases != CASES[report.kind]] == []
    assert [report.kind for report in reports if not report.counts["value"]] == []


@pytest.mark.parametrize("name", corpus.CASES)
def test_what_once_broke_something_is_refused(name: str, tmp_path: Path) -> None:
    kind, make = corpus.CASES[name]
    takes, given = KINDS[kind](tmp_path), make()
    with pytest.raises(DorylusError) as caught:
        takes.take(given)
    assert 0 < len(str(caught.value)) < 20_000


def test_what_breaks_a_rule_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "HUNG_S", 3.0)
    wrong = {"raises": 1, "grows": 1, "dies": 2, "hangs": 1}
    reports = {report.kind: report for report in campaign.run(wrong, tmp_path)}
    assert "KeyError" in reports["raises"].broken[0]
    assert "MiB, where" in reports["grows"].broken[0]
    assert [line.split(": ")[1] for line in reports["dies"].broken] == ["died with exit code -11"] * 2
    assert "hung for" in reports["hangs"].broken[0]
