"""Services to run functions on: processes, Lambda's stand-in and an HTTP server, as they are or sabotaged."""

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dorylus.functions.deploy.config import FunctionConfig, on_this_machine
from dorylus.functions.deploy.local import LocalFunctions
from dorylus.functions.deploy.package import Package
from dorylus.pools import POOLS, makers, processes
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import Invoker, PoolHandle

HERE = Path(__file__).parent
SHIPPED = ("__init__.py", "injected_faults.py", "inside.py", "sabotaged_lambda.py")
HANDLER = "functions_bench.sabotaged_lambda.handler"
STOP_S = 30.0


class SabotagedWorker(processes.Worker):
    """A process with the sabotaged handler."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "functions_bench.sabotaged_worker"],
                stdin=theirs.fileno(),
                env={**os.environ, **processes.ONE_THREAD, "PYTHONPATH": str(HERE.parent)},
                process_group=0,
            )


@contextmanager
def sabotaged_processes() -> Iterator[None]:
    """Within the context, every process that is started for dense tasks is a sabotaged one."""
    with patch.object(processes, "Worker", SabotagedWorker):
        yield


@contextmanager
def sabotaged_lambda(package: Package, folder: Path, **settings: Any) -> Iterator[LocalFunctions]:
    """Lambda's stand-in with the sabotaged function in it; ``settings`` are those of the function."""
    config = FunctionConfig(name="sabotaged", platform=on_this_machine(), **settings)
    with LocalFunctions(config, package=with_saboteur(package, folder)) as functions:
        service = functions.access.client("lambda")
        service.update_function_configuration(FunctionName=config.name, Handler=HANDLER)
        service.get_waiter("function_updated_v2").wait(FunctionName=config.name, WaiterConfig={"Delay": 1})
        yield functions


def with_saboteur(package: Package, folder: Path) -> Package:
    """The zip with the sabotaged entry point and the one it wraps."""
    path = Path(shutil.copy(package.path, folder / "sabotaged.zip"))
    with zipfile.ZipFile(path, "a") as archive:
        for name in SHIPPED:
            archive.write(HERE / name, f"{HERE.name}/{name}")
    return replace(package, path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


@dataclass(frozen=True)
class HttpServer:
    """A server of our application on this machine."""

    url: str
    pid: int


@contextmanager
def http_server(app: str = "dorylus.functions.asgi:app") -> Iterator[HttpServer]:
    """Our application, run by uvicorn."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", app, "--log-level", "warning", "--fd", str(listening.fileno())],
            pass_fds=[listening.fileno()],
        )
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    try:
        yield HttpServer(url, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)


@contextmanager
def invoked_by(name: str, make: Callable[[], Invoker]) -> Iterator[None]:
    """Within the context, the pool of this name uses this invoker, without the check of the real service."""
    spec = replace(
        POOLS[name], maker=lambda *arguments: makers.pool_of_functions(make(), *arguments), check=None, extra=None
    )
    with patch.dict(POOLS, {name: spec}):
        yield


@contextmanager
def made_with(policy: Policy, **travel: Any) -> Iterator[None]:
    """Within the context, runs make their pools with this policy and these settings of the data path."""

    make_pool = makers.make_pool

    def made(request: makers.PoolRequest, listeners: makers.PoolListeners) -> PoolHandle:
        return make_pool(replace(request, policy=policy, travel=replace(request.travel, **travel)), listeners)

    with patch.object(makers, "make_pool", made):
        yield
