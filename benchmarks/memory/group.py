"""A memory group (control groups, version 1; root): the memory of a process, page cache included, and a hard limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.ingest import GROUPS

POLL_S = 0.05
HIGH_WATER_MARK = "memory.max_usage_in_bytes"
PARTS = {"anonymous": "total_rss", "page cache": "total_cache"}  # ours: the kernel's


@dataclass
class JobResult:
    """How a process in a group ended. ``peak``: of all stages; ``parts``: the most of each, sampled."""

    status: int
    report: dict[str, Any] = field(default_factory=dict)  # the JSON in the job's last line
    peak: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    refused: int = 0  # how often the limit was reached
    oom_kills: int = 0
    errors: str = ""

    def checked(self) -> Self:
        """This result; exits if the process failed."""
        if self.status or not self.report:
            sys.exit(f"the run ended with status {self.status} at a peak of {self.peak >> 20} MiB.\n{self.errors}")
        return self


class Group:
    """A new memory group, with a hard limit or without one, until it is left."""

    def __init__(self, name: str, limit: int | None = None) -> None:
        self.path = GROUPS / f"dorylus-memory-{os.getpid()}-{name}"
        self.path.mkdir()
        if limit is not None:
            (self.path / "memory.limit_in_bytes").write_text(str(limit))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.path.rmdir()

    def run(self, order: Mapping[str, Any]) -> JobResult:
        """The result of a job in this group."""
        command = job_command({**order, "group": str(self.path)})
        joined = ["sh", "-c", f'echo $$ > "{self.path}/cgroup.procs" && exec "$@"', "sh", *command]
        with subprocess.Popen(joined, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            parts, output, errors = self._watched(process)
        report = _last_line(output)
        stages = report.get("stages", {}).values()
        oom = dict(line.split() for line in (self.path / "memory.oom_control").read_text().splitlines())
        return JobResult(
            status=process.returncode,
            report=report,
            peak=max(self._read(HIGH_WATER_MARK), *stages, 0),
            parts=parts,
            refused=self._read("memory.failcnt"),
            oom_kills=int(oom.get("oom_kill", 0)),
            errors=errors[-2000:],
        )

    def _watched(self, process: subprocess.Popen[str]) -> tuple[dict[str, int], str, str]:
        parts = dict.fromkeys(PARTS, 0)
        while True:
            stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
            parts = {ours: max(parts[ours], int(stat[name])) for ours, name in PARTS.items()}
            try:
                return (parts, *process.communicate(timeout=POLL_S))
            except subprocess.TimeoutExpired:
                continue

    def _read(self, file: str) -> int:
        return int((self.path / file).read_text())


def run_outside(order: Mapping[str, Any]) -> JobResult:
    """The result of a job without a group; its peak is that of its resident size."""
    done = subprocess.run(job_command(order), capture_output=True, text=True, check=False)
    report = _last_line(done.stdout)
    return JobResult(
        status=done.returncode, report=report, peak=report.get("resident_peak", 0), errors=done.stderr[-2000:]
    )


def job_command(order: Mapping[str, Any]) -> list[str]:
    """The command line of a job."""
    return [sys.executable, "-m", "benchmarks.memory.job", json.dumps(order)]


def _last_line(output: str) -> dict[str, Any]:
    lines = output.splitlines()
    return json.loads(lines[-1]) if lines else {}


def drop_pages(folder: Path) -> None:
    """Make the kernel drop the pages of the files in a folder: the group that reads them next is charged for them."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # only clean pages can be dropped
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
