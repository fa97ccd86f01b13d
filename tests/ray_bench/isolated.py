"""Isolated namespaces: processes, network and mounts of their own, gone with the first process in them.

    python -m ray_bench.isolated MODULE WORDS

runs a module in them.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
_OWN = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]


@cache
def why_not() -> str | None:
    """Why this machine cannot run Ray in isolated namespaces; None if it can."""
    if importlib.util.find_spec("ray") is None:
        return "it needs Ray"
    if sys.platform != "linux" or any(shutil.which(name) is None for name in ("ip", "unshare", "nsenter")):
        return "it needs Linux with iproute2 and util-linux"
    if os.geteuid() != 0 or subprocess.run([*_OWN, "true"], capture_output=True).returncode:
        return "it needs root and the right to make namespaces"
    return None


def run_isolated(module: str, *words: str, timeout_s: float) -> Any:
    """Run a module of the tests in isolated namespaces; returns the JSON in the last line it prints."""
    command = [*_OWN, sys.executable, "-m", module, *words]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except BaseException as why:
        process.send_signal(signal.SIGKILL)  # and with it every process in its namespaces
        output, errors = process.communicate()
        raise AssertionError(f"{module} did not end within {timeout_s:g} s:\n{output}\n{errors[-5000:]}") from why
    assert process.returncode == 0, f"{module} failed:\n{output}\n{errors[-5000:]}"
    return last_json(output)


def last_json(output: str) -> Any:
    """The last line of JSON that a process has printed; Ray may print other lines before it and after it."""
    return json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{")))


def python_path() -> str:
    """The PYTHONPATH with which modules of tests and benchmarks are found."""
    return os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(TESTS), str(TESTS.parent)])


def settle_in() -> None:
    """Set up the namespaces, before anything else: loopback, and /run/netns and /dev/shm apart from the machine's."""
    os.makedirs("/run/netns", exist_ok=True)
    for command in ("ip link set lo up", "mount -t tmpfs none /run/netns", "mount -t tmpfs none /dev/shm"):
        subprocess.run(command.split(), check=True, capture_output=True)


if __name__ == "__main__":
    if reason := why_not():
        sys.exit(f"Ray on nodes of this machine: {reason}.")
    os.execvp(_OWN[0], [*_OWN, sys.executable, "-m", *sys.argv[1:]])
