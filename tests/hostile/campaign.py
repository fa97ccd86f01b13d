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
MOST_BROKEN = 20  # of a kind, before it is left
TESTS = Path(__file__).parent.parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass
class Report:
    """What became of the cases of a kind; ``broken`` holds a line for each that broke a rule, with its number."""

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
    """Take in so many cases of each kind, from number ``first`` on; a case is the same whenever it is made."""
    folder.mkdir(parents=True, exist_ok=True)
    reports = {kind: Report(kind) for kind in kinds}
    left = [(kind, first, first + cases) for kind, cases in kinds.items()]
    while left:
        left = _run_child(reports, seed, left, folder)
        left = [each for each in left if len(reports[each[0]].broken) < MOST_BROKEN]
    return list(reports.values())


Left = list[tuple[str, int, int]]


def _run_child(reports: dict[str, Report], seed: str, left: Left, folder: Path) -> Left:
    """Run a child until it ends, however that is: what is left to do."""
    (folder / "at").write_bytes(bytes(AT.size))
    (folder / "said").write_text("")
    asked = [f"{kind}:{first}:{last}" for kind, first, last in left]
    command = [sys.executable, "-W", "ignore", "-m", "hostile.child", seed, str(folder), *asked]
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
    for line in (folder / "said").read_text().splitlines():
        _note(reports, seed, json.loads(line))
    if process.returncode == 0:
        return []
    place, case = _at(folder)
    if place == 0:
        raise RuntimeError(f"the process for {asked[0]} did not begin: {complaint}")
    kind, first, last = left[place - 1]
    why = f"hung for {HUNG_S:g} s" if hung else f"died with exit code {process.returncode}: {complaint}"
    reports[kind].broken.append(f"{kind} {seed} {case}: {why}")
    reports[kind].counts.update({"value or refused": case - first, "broken": 1})
    return [(kind, case + 1, last), *left[place:]] if case + 1 < last else left[place:]


def _note(reports: dict[str, Report], seed: str, told: dict[str, object]) -> None:
    report = reports[str(told["kind"])]
    if "case" in told:
        report.broken.append(f"{report.kind} {seed} {told['case']}: {told['why']}")
        return
    report.counts.update(told["counts"])  # type: ignore[arg-type]
    report.seconds += float(str(told["seconds"]))
    report.legitimate = max(report.legitimate, int(str(told["legitimate"])))
    report.worst = max(report.worst, int(str(told["worst"])))


def _watch(process: "subprocess.Popen[bytes]", folder: Path) -> bool:
    """Wait for the child; whether it made no progress for too long."""
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
    """Which of the kinds a child is at, from 1 on, and its case."""
    content = (folder / "at").read_bytes()
    return AT.unpack(content) if len(content) == AT.size else (0, 0)
