"""Twenty kills of one run: its bill is what it used."""

import json
import sys
from pathlib import Path

import pytest

from functions_bench.services import http_server

sys.path.append(str(Path(__file__).parents[1] / "integration"))

from test_killed_bill import killed_run


@pytest.mark.timeout(900)
def test_after_twenty_kills_the_bill_differs_by_less_than_an_epoch_in_all(tmp_path: Path) -> None:
    billed_s, measured_s, epoch_s = killed_run(tmp_path / "run", kills=20, task_s=0.1, epochs=12, timeout_s=800)
    print(f"bill {billed_s:.2f} s, measured {measured_s:.2f} s, an epoch {epoch_s:.2f} s")
    assert billed_s == pytest.approx(measured_s, abs=epoch_s)


@pytest.mark.timeout(900)
def test_the_bill_differs_from_the_service_by_less_than_the_invocations_of_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    billed, counted = invocations(tmp_path / "killed", monkeypatch, kills=20, epochs=12)
    _, undisturbed = invocations(tmp_path / "undisturbed", monkeypatch, kills=0, epochs=4)
    in_an_epoch = undisturbed // 5  # four epochs and the last evaluation, which takes fewer invocations
    print(f"{billed} invocations on the bill, {counted} counted by the service, {in_an_epoch} in an epoch")
    assert abs(billed - counted) < in_an_epoch


def invocations(folder: Path, monkeypatch: pytest.MonkeyPatch, *, kills: int, epochs: int) -> tuple[int, int]:
    """The invocations on the bill of a run, and those that the service counted."""
    folder.mkdir()
    monkeypatch.setenv("COUNTED", str(folder / "counted"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    with http_server("crash_bench.counting_app:app") as server:
        killed_run(folder / "run", server.url, kills=kills, task_s=0.05, epochs=epochs, timeout_s=800)
    bill = json.loads((folder / "run" / "metrics.json").read_text())["bill"]
    lines = [line for line in bill["lines"] if line["what"].startswith("requests")]
    return round(sum(float(line["quantity"]) for line in lines) * 1e6), (folder / "counted").stat().st_size
