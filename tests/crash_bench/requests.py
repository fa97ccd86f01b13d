"""A process that examines writers, and the requests to it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crash_bench.preload import compiled

TESTS = Path(__file__).parents[1]


class Examiner:
    """Sends requests to a running process and returns its answers."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, writer: str, action: str, **more: Any) -> dict[str, Any]:
        """Examine a writer; the answer has ``calls``, ``tried`` and ``problems``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"writer": writer, "action": action, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the examining process has died"
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer


@contextmanager
def examiner(folder: Path) -> Iterator[Examiner]:
    """A process that is started with the library of faults, which is compiled in a folder."""
    more = {"LD_PRELOAD": str(compiled(folder)), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "crash_bench.examination"]
    with (
        open(folder / "stderr", "w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **more}
        ) as process,
    ):
        yield Examiner(process)
        assert process.stdin is not None
        process.stdin.close()
