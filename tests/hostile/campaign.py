"""Runs many cases in child processes: one that dies or hangs costs its case, and the next one goes on."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hostile.child import AT, CASE_S

HUNG_S = 12 * CASE_S  # without a new case
MOST_BROKEN = 20  # of a kind; then its other cases are skipped
TESTS = Path(__file__).parent.parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass
class Report:
    """The results of the cases of a kind; ``broken`` has a line for each case that broke a rule, with its number."""

    kind: str
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0
    legitimate: int = 0
    worst: int = 0

    @property
    def cases(self) -> int:
        return self.counts.total()

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items()))
        memory = f"at most {self.worst / 2**20:.1f} MiB, legitimate {self.legitimate / 2**20:.1f} MiB"
        return f"{self.kind}: {self.cases:,} cases in {self.seconds:.0f} s ({counts}); {memory}"


def run(kinds: Mapping[str, int], folder: Path, *, seed: str = "dorylus", first: int = 0) -> list[Report]:
    """Run a number of cases of each kind, from number ``first`` on; kind, seed and number determine a case."""
    folder.mkdir(parents=True, exist_ok=True)
    reports = {kind: Report(kind) for kind in kinds}
    left = [(kind, first, first + cases) for kind, cases in kinds.items()]
    while left:
        left = _run_child(reports, seed, left, folder)
        left = [each for each in left if len(reports[each[0]].broken) < MOST_BROKEN]
    return list(reports.values())


Left = list[tuple[str, int, int]]


def _run_child(reports: dict[str, Report], seed: str, left: Left, folder: Path) -> Left:
    """Run a child until it ends or hangs; returns the cases that are left."""
    (folder / "at").write_bytes(bytes(AT.size))
    (folder / "reports").write_text("")
    ranges = [f"{kind}:{first}:{last}" for kind, first, last in left]
    command = [sys.executable, "-W", "ignore", "-m", "hostile.child", seed, str(folder), *ranges]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), **ONE_THREAD}
    with open(folder / "printed", "w+", errors="replace") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=printed, env=environment)
        try:
            hung = _watch(process, folder)
        finally:
            process.kill()
            process.wait()
        printed.seek(0)
        complaint = printed.read()[-1000:]
    for line in (folder / "reports").read_text().splitlines():
        _note(reports, seed, json.loads(line))
    if process.returncode == 0:
        return []
    place, case = _at(folder)
    if place == 0:
        raise RuntimeError(f"the process for {ranges[0]} did not begin: {complaint}")
    kind, first, last = left[place - 1]
    why = f"hung for {HUNG_S:g} s" if hung else f"died with exit code {process.returncode}: {complaint}"
    reports[kind].broken.append(f"{kind} {seed} {case}: {why}")
    reports[kind].counts.update({"value or refused": case - first, "broken": 1})
    return [(kind, case + 1, last), *left[place:]] if case + 1 < last else left[place:]


def _note(reports: dict[str, Report], seed: str, record: dict[str, object]) -> None:
    report = reports[str(record["kind"])]
    if "case" in record:
        report.broken.append(f"{report.kind} {seed} {record['case']}: {record['why']}")
        return
    report.counts.update(record["counts"])  # type: ignore[arg-type]
    report.seconds += float(str(record["seconds"]))
    report.legitimate = max(report.legitimate, int(str(record["legitimate"])))
    report.worst = max(report.worst, int(str(record["worst"])))


def _watch(process: "subprocess.Popen[bytes]", folder: Path) -> bool:
    """Wait for the child; returns whether it hangs."""
    seen, since = (0, 0), time.monotonic()
    while True:
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            if (now := _at(folder)) != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > HUNG_S:
                return True
        else:
            return False


def _at(folder: Path) -> tuple[int, int]:
    """The position of a child: the number of its kind, from 1 on, and its case."""
    content = (folder / "at").read_bytes()
    return AT.unpack(content) if len(content) == AT.size else (0, 0)
