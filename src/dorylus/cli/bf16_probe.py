"""Whether this processor can multiply bfloat16 matrices in torch, found out in a child process.

Some machines announce instructions (AMX) whose use kills the process. A child may die of it; the user's process
must not.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

PROGRAM = (
    "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); raise SystemExit(0 if (a @ a).max() == 64 else 3)"
)
SAFER = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
DEADLINE_S = 120.0

Run = Callable[[Mapping[str, str]], int | None]


def probe(run: Run | None = None) -> tuple[str, str]:
    """("ok" or "warn", what was found): as it is, then with oneDNN kept from the newest instructions."""
    attempt = run or run_child
    first = attempt({})
    if first == 0:
        return "ok", "works"
    if attempt(SAFER) == 0:
        name, value = next(iter(SAFER.items()))
        return "warn", f"{_end(first)}, works with {name}={value}"
    return "warn", _end(first)


def run_child(extra: Mapping[str, str]) -> int | None:
    """The child's exit code, negative for a signal; None when it did not end in time."""
    environment = {**os.environ, **extra}
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, timeout=DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def _end(code: int | None) -> str:
    if code is None:
        return f"does not end within {DEADLINE_S:g} s"
    if code < 0:
        return f"dies of {signal.Signals(-code).name}"
    return "gives a wrong product" if code == 3 else f"fails with exit code {code}"
