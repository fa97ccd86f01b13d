"""Ray's nodes in namespaces of this machine: started, killed, cut off, started again, and checked for leaks.

All of it must run in an isolated place (:mod:`ray_bench.isolated`), where everything ends with the first process.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ray_bench.isolated import python_path
from ray_bench.leaks import SERVERS
from ray_bench.network import Network, alive, title

PORT = 6379
START_S = 90.0
END_S = 20.0

# Ray detects a killed node after 5 checks, in about 5 s (its ports refuse), and a silent one in about 10 s.
_HEALTH = {"initial_delay_ms": 1000, "period_ms": 1000, "timeout_ms": 1000, "failure_threshold": 5}


class RayNodes:
    """``count`` nodes with ``cpus`` cores each; node 0 is the head. Their token is not known outside them.

    ``checks`` is the number of missed health checks after which a node counts as lost. Use many where no node is to be
    lost: on a busy machine a live node can be silent for seconds.
    """

    def __init__(self, count: int, *, cpus: float = 2.0, checks: int = _HEALTH["failure_threshold"]) -> None:
        self.network = Network(count)
        self._folder = Path(tempfile.mkdtemp(prefix="rays-"))  # short: names of sockets may have 107 bytes
        self._cpus, self._starts = cpus, 0
        self._disks: dict[int, Path] = {}  # of each node: what Ray keeps there
        self._drivers: dict[subprocess.Popen[str], Path] = {}  # and the file that each writes its stderr to
        self.address = f"{self.network.addresses[0]}:{PORT}"
        self.scratch = self._folder / "tmp"
        self.scratch.mkdir()
        own = {"RAY_ADDRESS": self.address, "TMPDIR": str(self.scratch)}
        self.environment = environment(self._folder) | own | {"RAY_health_check_failure_threshold": str(checks)}
        try:
            self._wait_for(0, self._begin(0))
            for number, starting in [(number, self._begin(number)) for number in range(1, count)]:
                self._wait_for(number, starting)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.network.addresses)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def drive(self, module: str, *words: str, node: int = 0) -> "subprocess.Popen[str]":
        """A module of the tests or benchmarks as a driver on a node, with pipes to its input and output."""
        command = self.network.command(node, [sys.executable, "-u", "-m", module, *words])
        pipe, errors = subprocess.PIPE, self._folder / f"driver-{len(self._drivers)}.err"
        with errors.open("wb") as file:
            driver = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=file, text=True, env=self.environment)
        self._drivers[driver] = errors
        return driver

    def output(self, driver: "subprocess.Popen[str]", timeout_s: float) -> str:
        """All that a driver prints until it ends, which it has to do in time and with exit code 0."""
        try:
            output, _ = driver.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as late:
            why = f"the driver did not end within {timeout_s:g} s"
            raise SystemExit(self._failure(driver, why, _text(late.output))) from None
        if driver.returncode != 0:
            raise SystemExit(self._failure(driver, f"the driver ended with exit code {driver.returncode}", output))
        return output

    def _failure(self, driver: "subprocess.Popen[str]", why: str, output: str) -> str:
        """The end of a driver's output, of its stderr and of the log that Ray writes for it; then why it failed."""
        parts = {"stdout": output, "stderr": self._drivers[driver].read_text(errors="replace")}
        for disk in self._disks.values():
            for log in disk.glob(f"session_*/logs/*driver*_{driver.pid}.log"):
                lines = log.read_text(errors="replace").splitlines()
                parts[log.name] = "\n".join(line for line in lines if line.startswith("["))  # without statistics
        return "\n".join([*(f"--- the end of its {name}:\n{text[-1400:]}" for name, text in parts.items()), f"{why}."])

    def servers(self, node: int | None = None) -> dict[int, str]:
        """The processes of our actors, on a node or on all: pid and what each is."""
        there = alive() if node is None else self.network.processes(node)
        return {pid: kind.removeprefix("ray::") for pid in there for kind in SERVERS if title(pid).startswith(kind)}

    def node_of(self, pid: int) -> int:
        """The node on which a process runs."""
        return next(node for node in range(len(self)) if pid in self.network.processes(node))

    def kill_node(self, node: int) -> None:
        """Kill all processes of a node at once; the kernel closes their connections, so their peers notice."""
        for pid in end(lambda: self.network.processes(node)):
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # an orphan becomes a child of the first process of this namespace

    def start_node(self, node: int) -> None:
        """Start Ray on a node where nothing runs, as on a new machine."""
        self._wait_for(node, self._begin(node))

    def close(self) -> None:
        """End every process, and remove all files and interfaces."""
        end(lambda: [pid for node in range(len(self)) for pid in self.network.processes(node)])
        for driver in self._drivers:
            driver.wait(END_S)
        self.network.close()
        shutil.rmtree(self._folder)

    def _begin(self, node: int) -> "subprocess.Popen[bytes]":
        self._starts += 1
        if node in self._disks:
            shutil.rmtree(self._disks[node])
        self._disks[node] = disk = self._folder / str(self._starts)
        own = self.network.addresses[node]
        head = ["--head", f"--port={PORT}", "--include-dashboard=false", "--no-monitor"]
        role = head if node == 0 else [f"--address={self.address}"]
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", *role),
            f"--node-ip-address={own}",
            f"--num-cpus={self._cpus:g}",
            "--object-store-memory=100000000",
            f"--temp-dir={disk}",
            "--disable-usage-stats",
            "--include-log-monitor=false",
        ]
        log = (self._folder / f"start-{self._starts}.log").open("wb")
        with log:
            return subprocess.Popen(
                self.network.command(node, command), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.environment,
            )  # fmt: skip

    def _wait_for(self, node: int, starting: "subprocess.Popen[bytes]") -> None:
        try:
            code = starting.wait(START_S)
        except subprocess.TimeoutExpired:
            starting.kill()
            code = starting.wait()
        if code != 0:
            output = "\n".join(path.read_text(errors="replace") for path in self._folder.glob("start-*.log"))
            raise RuntimeError(f"Ray did not start on node {node}: {output[-3000:]}")


def environment(folder: Path) -> dict[str, str]:
    """The environment of Ray's processes: nothing in it leads to hosts outside the namespaces."""
    home = folder / "home"
    home.mkdir()
    (home / "ray_bootstrap_config.yaml").write_text(
        "provider: {type: local}\n"
    )  # else Ray queries the clouds' metadata
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "PYTHONPATH": python_path(),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(home / "torch"),  # else torch makes it in the folder for temporary files
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/",
        "RAY_enable_metrics_collection": "0",
        "RAY_prestart_worker_first_driver": "0",
        **{f"RAY_health_check_{name}": str(value) for name, value in _HEALTH.items()},
    }


def _text(output: bytes | str | None) -> str:
    """What a process printed before its time was over: bytes, even where its pipe is one of text."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def end(processes: Callable[[], Sequence[int]]) -> set[int]:
    """Kill processes until none is left, within a deadline; returns the killed ones."""
    killed: set[int] = set()
    until = time.monotonic() + END_S
    while left := processes():
        if time.monotonic() > until:
            raise RuntimeError(f"processes do not end: {[title(pid) for pid in left]}")
        killed.update(left)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return killed
