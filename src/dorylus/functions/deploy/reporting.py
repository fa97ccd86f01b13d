"""Writes the line that AWS writes into a function's log after each invocation, for the stand-in, which does not.

Only the zip for this machine contains it, between AWS's runtime client and the handler, so that billed times are read
as on AWS. Standard library only.
"""

import importlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def report(request_id: str, duration_ms: float, init_ms: float | None, memory_mb: str) -> str:
    """The line in AWS's format; ``init_ms`` is the billed time of a cold start."""
    billed_ms = math.ceil(duration_ms + (init_ms or 0.0))
    line = f"REPORT RequestId: {request_id}\tDuration: {duration_ms:.2f} ms\tBilled Duration: {billed_ms} ms"
    line += f"\tMemory Size: {memory_mb} MB"
    return line if init_ms is None else f"{line}\tInit Duration: {init_ms:.2f} ms"


def reporting(
    inner: Callable[[Any, Any], Any], init_ms: float, memory_mb: str, write: Callable[[str], None]
) -> Callable[[Any, Any], Any]:
    """A handler around a handler: after each invocation it writes the line."""
    colds = [init_ms]

    def handle(event: Any, context: Any) -> Any:
        start_s = time.perf_counter()
        try:
            return inner(event, context)
        finally:
            spent_ms = 1000 * (time.perf_counter() - start_s)
            write(report(context.aws_request_id, spent_ms, colds.pop() if colds else None, memory_mb))

    return handle


def process_age_ms() -> float:
    """How long ago this process was started, to a hundredth of a second."""
    started = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return 1000 * max(0.0, float(Path("/proc/uptime").read_text().split()[0]) - started)


def _of_this_process() -> Callable[[Any, Any], Any]:
    module, _, name = os.environ["_HANDLER"].rpartition(".")
    inner = getattr(importlib.import_module(module), name)
    memory_mb = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
    return reporting(inner, process_age_ms(), memory_mb, lambda line: print(line, flush=True))


if "AWS_LAMBDA_RUNTIME_API" in os.environ:  # inside a function; in tests there is no handler
    handler = _of_this_process()
