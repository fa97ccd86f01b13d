"""A stand-in for AWS Lambda on this machine: ministack on a loopback port, with the function deployed by the same code.

Functions are processes that AWS's own runtime client runs, started from the function's zip; they get none of this
process's environment variables. ministack runs in a process of its own (``python -m dorylus.functions.deploy.local``),
which leads a process group and has a pipe as its standard input. When the other end of the pipe is closed, it removes
the functions' folder (TMPDIR) and kills the group.
"""

import http.client
import importlib
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from dorylus.extras import check_installed
from dorylus.functions.deploy.access import LOCAL_REGION, AwsAccess
from dorylus.functions.deploy.aws import Deployment
from dorylus.functions.deploy.config import DeployError, FunctionConfig, on_this_machine
from dorylus.functions.deploy.package import Package, build
from dorylus.functions.deploy.plan import DesiredState

HOST: Final = "127.0.0.1"
START_S: Final = 60.0
STOP_S: Final = 10.0
_POLL_S: Final = 0.05
_STARTS: Final = 3  # another process may take a free port before ministack does
_HEALTH: Final = "/_ministack/health"
_LOG: Final = "ministack.log"


class LocalFunctions:
    """A Lambda service on this machine with the function, until it is closed: ``with LocalFunctions() as local:``.

    ``access`` is how to reach it; ``config`` says what the function is (its platform is always this machine).
    """

    def __init__(self, config: FunctionConfig | None = None, *, package: Package | None = None) -> None:
        check_installed("a function on this machine", "local-functions")
        self.config = config or FunctionConfig(platform=on_this_machine())
        self._folder = Path(tempfile.mkdtemp(prefix="dorylus-functions-"))
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.access = self._start()
            self.desired = DesiredState(self.config, package or build(self.config.platform), LOCAL_REGION)
            Deployment(self.desired, self.access).deploy()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """The id of the service's process, which is that of the group all functions belong to; None when closed."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the service and every function, and remove what they wrote."""
        process, self._process = self._process, None
        if process is not None:
            _stop(process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "LocalFunctions":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> AwsAccess:
        for _ in range(_STARTS):
            port = _free_port()
            self._process = self._run(port)
            if _answers(self._process, port):
                return AwsAccess(LOCAL_REGION, f"http://{HOST}:{port}")
            _stop(self._process)
        output = (self._folder / _LOG).read_text(errors="replace").strip()[-1000:]
        raise DeployError(f"ministack did not start on this machine within {START_S:.0f} s. It printed: {output}")

    def _run(self, port: int) -> "subprocess.Popen[bytes]":
        folder = str(self._folder)
        environment = {  # the whole environment: functions must not see the user's variables or credentials
            "PATH": os.defpath,
            "HOME": folder,
            "TMPDIR": folder,
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(port),
            "LOG_LEVEL": "WARNING",
        }
        with (self._folder / _LOG).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dorylus.functions.deploy.local"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
                process_group=0,
            )


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _answers(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Wait until the service answers; False if it ends or takes too long."""
    deadline_s = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline_s:
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", _HEALTH)
            if connection.getresponse().status == http.client.OK:
                return True
        except OSError:
            time.sleep(_POLL_S)
        finally:
            connection.close()
    return False


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(STOP_S)


def main() -> None:
    """Serve ministack until the pipe is closed."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    # The runtime API writes head and body of an answer separately: without TCP_NODELAY the body waits 40 ms.
    socketserver.StreamRequestHandler.disable_nagle_algorithm = True
    sys.argv = ["ministack"]
    importlib.import_module("ministack.app").main()


def _exit_with_parent() -> None:
    os.read(0, 1)  # nothing is written: returns when the other end is closed
    shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)  # the parent process may have been killed
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
