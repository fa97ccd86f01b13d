"""A run with functions behind a network: ministack in a network namespace, each function under limits.

    python -m functions_bench.far_away PACKAGE OPTIONS

runs in a namespace of its own (``unshare --net --mount``), makes a second one for the service, with so much bandwidth
between the two, and prints the result of the run as JSON. OPTIONS is JSON: see :class:`Options`.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import dorylus
from dorylus.errors import DorylusError
from dorylus.functions.deploy.access import LOCAL_REGION, local_access
from dorylus.functions.deploy.aws import Deployment
from dorylus.functions.deploy.config import FunctionConfig, on_this_machine
from dorylus.functions.deploy.package import Package
from dorylus.functions.deploy.plan import DesiredState
from dorylus.pools.aws_lambda import LambdaInvoker
from dorylus.pools.pacing import Policy
from functions_bench.limits import FunctionLimits
from functions_bench.runs import model, small
from functions_bench.services import invoked_by, made_with

OURS, THEIRS, PORT = "10.214.0.1", "10.214.0.2", 4566
START_S = 30.0


@dataclass(frozen=True)
class Options:
    """The run's settings, a function's limits, and megabits a second each way."""

    settings: dict[str, Any]
    memory_mb: int = 512
    cores: float = 0.5
    mbit: int = 200
    attempts: int = 10


def main(package_path: str, options: Options) -> dict[str, Any]:
    """Make the network, deploy, train; the result of the run."""
    make_network(options.mbit)
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        limits = FunctionLimits(f"dorylus-{os.getpid()}", memory_mb=options.memory_mb, cores=options.cores)
        ends.callback(limits.close)
        service = serve(folder)
        ends.callback(stop, service)
        access = local_access(f"http://127.0.0.1:{forwarded()}")  # a stand-in is reached by loopback only
        package = limits.around(Package(Path(package_path), "", 0, 0), folder / "limited.zip")
        config = FunctionConfig(platform=on_this_machine())
        Deployment(DesiredState(config, package, LOCAL_REGION), access).deploy()
        ends.enter_context(invoked_by("lambda", lambda: LambdaInvoker(access)))
        ends.enter_context(made_with(Policy(attempts=options.attempts, backoff_s=0.05)))
        result = train(options)
        result["metered_periods"] = limits.counted("cpu", "cpu.stat", "nr_periods")
        result["bytes_to_us"] = int(Path("/proc/net/dev").read_text().partition("ours:")[2].split()[0])
        return result


def train(options: Options) -> dict[str, Any]:
    """Train, and return the result or the error."""
    settings = {"pool": "lambda", "data_host": OURS, **options.settings}
    try:
        result = dorylus.train(small(), model("gcn"), **settings)
    except DorylusError as error:
        return {"error": str(error)}
    return {"losses": result.losses, "pool": dict(result.pool)}


def make_network(mbit: int) -> None:
    """A namespace for functions, and a link to it of ``mbit`` megabits a second each way."""
    bucket = f"root tbf rate {mbit}mbit burst 40000 latency 200ms"
    for command in (
        "mount --make-rprivate /", "mount -t tmpfs none /run/netns", "ip link set lo up",
        "ip netns add functions", "ip link add ours type veth peer name theirs netns functions",
        f"ip addr add {OURS}/24 dev ours", "ip link set ours up",
        f"ip -n functions addr add {THEIRS}/24 dev theirs", "ip -n functions link set theirs up",
        "ip -n functions link set lo up",
        f"tc qdisc add dev ours {bucket}", f"tc -n functions qdisc add dev theirs {bucket}",
    ):  # fmt: skip
        subprocess.run(command.split(), check=True, capture_output=True)


def serve(folder: Path) -> "subprocess.Popen[bytes]":
    """ministack, where functions are."""
    environment = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "LOG_LEVEL": "WARNING"}
    where = {"BIND_HOST": THEIRS, "GATEWAY_PORT": str(PORT)}
    there = ["nsenter", "--net=/run/netns/functions"]  # `ip netns exec` would hide the control groups
    words = [*there, sys.executable, "-m", "dorylus.functions.deploy.local"]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=sys.stderr, env=environment | where, cwd=folder, process_group=0
    )
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            urlopen(f"http://{THEIRS}:{PORT}/_ministack/health", timeout=5).close()
            return process
        except OSError:
            time.sleep(0.05)
    stop(process)
    raise SystemExit("ministack did not start in its namespace.")


def forwarded() -> int:
    """A port of loopback behind which the service answers."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            near, _ = listener.accept()
            far = socket.create_connection((THEIRS, PORT))
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=pump, args=(source, target), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


def pump(source: socket.socket, target: socket.socket) -> None:
    """Forward the stream until it ends."""
    with suppress(OSError):
        while content := source.recv(1 << 16):
            target.sendall(content)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End the service and its functions."""
    assert process.stdin is not None
    process.stdin.close()  # it ends when its stdin closes, with its whole group
    process.wait(10)
    time.sleep(0.2)  # until the kernel has removed the killed processes


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Options(**json.loads(sys.argv[2])))))
