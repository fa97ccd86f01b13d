"""AWS's own Runtime Interface Emulator, unmodified, runs the function out of our zip and answers a real task."""

import http.client
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import zipfile
from base64 import b64decode, b64encode

import pytest
from dense_tasks import answered

from dorylus.functions.deploy.config import architecture_here, on_this_machine
from dorylus.functions.deploy.package import HANDLER, build

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="AWS's emulator is a Linux program")

SAM = "aws-sam-cli==1.170.0"  # the wheel that brings the emulator
INVOCATIONS = "/2015-03-31/functions/function/invocations"
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    """AWS's emulator, from its wheel on PyPI."""
    folder = tmp_path_factory.mktemp("emulator")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--dest", folder, SAM]
    try:
        got = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip did not get {SAM}, which brings AWS's emulator, within two minutes")
    if got.returncode:
        pytest.skip(f"pip cannot get {SAM}, which brings AWS's emulator: {got.stderr.strip()[-200:]}")
    (wheel,) = folder.glob("*.whl")
    program = folder / "aws-lambda-rie"
    with zipfile.ZipFile(wheel) as archive:
        program.write_bytes(archive.read(f"samcli/local/rapid/aws-lambda-rie-{architecture_here()}"))
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folder of the unpacked zip, as a function finds it."""
    folder = tmp_path_factory.mktemp("task")
    package = build(on_this_machine(), tmp_path_factory.mktemp("packages"))
    with zipfile.ZipFile(package.path) as archive:
        archive.extractall(folder)
    (folder / "bootstrap").chmod(0o755)
    return folder


def free_ports(count):
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


@pytest.fixture
def ask(emulator, unpacked, tmp_path):
    """Sends a frame to the function through the emulator's Invoke API; returns the answer's frame."""
    front, runtime = (f"127.0.0.1:{port}" for port in free_ports(2))
    command = [emulator, "--runtime-interface-emulator-address", front, "--runtime-api-address", runtime]
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "AWS_LAMBDA_FUNCTION_TIMEOUT": "30"}
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(
        [*command, unpacked / "bootstrap", HANDLER],
        cwd=unpacked, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
    )  # fmt: skip
    wait_until_open(front)

    def invoke(frame):
        connection = http.client.HTTPConnection(front, timeout=DEADLINE_S)
        connection.request("POST", INVOCATIONS, json.dumps({"frame": b64encode(frame).decode()}))
        content = connection.getresponse().read()
        connection.close()
        answer = json.loads(content)
        assert "frame" in answer, (content[:500], (tmp_path / "log").read_text()[-2000:])
        return b64decode(answer["frame"])

    invoke.process = process
    yield invoke
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(DEADLINE_S)
    log.close()


def wait_until_open(address):
    host, _, port = address.partition(":")
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"the emulator does not listen on {address}")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the emulator is for these processors")
def test_the_emulator_runs_the_zip_and_answers_a_real_task_cold_and_warm(ask):
    first = answered(ask)
    second = answered(ask)
    assert first["task"] == second["task"] == "task-1"
    assert second["cold"] is False
    assert second["timings"]["init_ms"] == 0  # the program was still loaded
