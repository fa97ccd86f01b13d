"""The server of a live page: its limits, and `dorylus live` and `train --live` from beginning to end."""

import errno
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dorylus.report import LiveRun, LiveServer, RunFigures
from dorylus.report import live as module

GRAPH = "communities:num_vertices=200,num_classes=3"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    (tmp_path / "log.jsonl").write_text('{"kind": "run", "t": 0.0}\n')
    run = LiveRun(tmp_path / "log.jsonl", lambda: RunFigures("mine"))
    run.poll()
    with LiveServer(run, "mine") as made:
        yield made


def answer_from(server: LiveServer, text: str, timeout_s: float = 10) -> bytes:
    """All that is answered to a request."""
    with closing(connected(server)) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(text.encode())
        return all_of(connection)


def connected(server: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def all_of(connection: socket.socket) -> bytes:
    pieces = []
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:  # closed with a part of the request unread
            return b"".join(pieces)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def get(server: LiveServer, path: str = "", method: str = "GET") -> str:
    return f"{method} {urlsplit(server.address).path}{path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_the_page_is_served_on_this_machine_alone(server: LiveServer) -> None:
    assert server._socket.getsockname()[0] == "127.0.0.1"
    answer = answer_from(server, get(server))
    assert status(answer) == 200
    assert b"<title>mine - Dorylus</title>" in answer


def test_a_head_has_no_body(server: LiveServer) -> None:
    head, body = answer_from(server, get(server, method="HEAD")).split(b"\r\n\r\n")
    assert b"Content-Length: " in head
    assert body == b""
    assert answer_from(server, get(server, "events", "HEAD")).endswith(b"\r\n\r\n")


def test_two_servers_have_different_tokens(server: LiveServer, tmp_path: Path) -> None:
    with LiveServer(LiveRun(tmp_path / "log.jsonl", lambda: RunFigures("x")), "x") as other:
        assert urlsplit(other.address).path != urlsplit(server.address).path
        assert len(urlsplit(other.address).path) >= 32
        assert status(answer_from(other, get(server).replace(str(server.port), str(other.port)))) == 404


def test_a_request_that_is_too_long_is_refused(server: LiveServer) -> None:
    assert status(answer_from(server, get(server)[:-2] + "X: " + "x" * 9000)) == 431


def test_a_request_that_comes_slowly_is_dropped_in_time(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_WITHIN_S", 0.3)
    began = time.monotonic()
    with closing(connected(server)) as connection:
        connection.sendall(b"GET /")
        assert all_of(connection) == b""
    assert time.monotonic() - began < 5


def test_too_many_open_files_for_a_while_do_not_end_the_page(server: LiveServer) -> None:
    class Exhausted:
        """A listening socket that once cannot accept."""

        failures = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(listening, name)

        def accept(self) -> Any:
            if not self.failures:
                self.failures += 1
                raise OSError(errno.EMFILE, "too many open files")
            return listening.accept()

    listening, exhausted = server._socket, Exhausted()
    server._socket = exhausted  # type: ignore[assignment]
    for _ in range(2):  # the first was being accepted already
        assert status(answer_from(server, get(server))) == 200
    assert exhausted.failures == 1


def test_connections_beyond_the_limit_are_closed_at_once(server: LiveServer) -> None:
    idle = [connected(server) for _ in range(module.MOST_CONNECTIONS)]
    try:
        deadline = time.monotonic() + 5
        while server._free._value and time.monotonic() < deadline:  # until all were accepted
            time.sleep(0.01)
        with closing(connected(server)) as one_more:
            assert all_of(one_more) == b""
    finally:
        for connection in idle:
            connection.close()
    deadline = time.monotonic() + 5
    while not server._free._value and time.monotonic() < deadline:
        time.sleep(0.01)
    assert status(answer_from(server, get(server))) == 200


def test_pages_beyond_the_limit_are_refused_and_all_others_end_with_the_server(server: LiveServer) -> None:
    streams = [connected(server) for _ in range(module.MOST_STREAMS)]
    for stream in streams:
        stream.sendall(get(server, "events").encode())
        assert b"200 OK" in stream.recv(65536)
    assert status(answer_from(server, get(server, "events"))) == 503
    server.close()
    for stream in streams:
        assert all_of(stream).endswith(b"event: end\ndata: {}\n\n")
        stream.close()


def test_a_port_that_is_taken_is_refused_with_the_cure(server: LiveServer, tmp_path: Path) -> None:
    with pytest.raises(module.ConfigError, match="Choose another port"):
        LiveServer(LiveRun(tmp_path / "log.jsonl", lambda: RunFigures("x")), "x", server.port)


def start(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dorylus.cli", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def address_in(process: subprocess.Popen[str]) -> str:
    """The address of the live page that a process prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("live page: "):
            return line.removeprefix("live page: ").strip()
    raise AssertionError(process.communicate()[1])


def events_of(address: str) -> str:
    """All events of a live page, until its end."""
    where = urlsplit(address)
    connection = http.client.HTTPConnection(where.netloc, timeout=60)
    with closing(connection):
        connection.request("GET", where.path + "events")
        return connection.getresponse().read().decode()


def is_gone(address: str, within_s: float = 10) -> bool:
    where, until = urlsplit(address), time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            socket.create_connection((where.hostname, where.port), timeout=1).close()
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_train_with_a_live_page_serves_it_until_the_run_has_ended(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with start("train", GRAPH, "--epochs", 40, "--threads", 1, "--run-dir", run_dir, "--live", "--quiet") as training:
        address = address_in(training)
        events = events_of(address)
        out, err = training.communicate(timeout=60)
    assert (training.returncode, err) == (0, "")
    assert "test accuracy" in out
    assert events.endswith("event: end\ndata: {}\n\n")
    assert '"text":"ended after 40 epochs"' in events
    assert '"text":"dorylus train --model gcn --epochs 40' in events
    assert is_gone(address)


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A run that goes on until it is stopped."""
    run_dir = tmp_path / "run"
    with start(
        "train", GRAPH, "--epochs", 10**6, "--threads", 1, "--run-dir", run_dir, "--quiet", "--live"
    ) as training:
        address_in(training)
        until = time.monotonic() + 30
        while not (run_dir / "log.jsonl").exists() and time.monotonic() < until:
            time.sleep(0.05)
        yield run_dir, training
        training.kill()
        training.communicate()


def test_a_live_page_ends_with_a_run_that_is_killed_and_so_does_the_page_of_train(
    endless: tuple[Path, subprocess.Popen[str]],
) -> None:
    run_dir, training = endless
    with start("live", run_dir) as serving:
        address = address_in(serving)
        training.kill()
        events = events_of(address)
        out, err = serving.communicate(timeout=60)
    assert (serving.returncode, out, err) == (0, "the run has ended\n", "")
    assert '"kind":"open"' in events
    assert events.endswith("event: end\ndata: {}\n\n")
    assert is_gone(address)


def test_ctrl_c_ends_a_live_page_and_leaves_the_run_alone(endless: tuple[Path, subprocess.Popen[str]]) -> None:
    run_dir, training = endless
    with start("live", run_dir) as serving:
        address = address_in(serving)
        serving.send_signal(signal.SIGINT)
        _, err = serving.communicate(timeout=60)
    assert (serving.returncode, err) == (130, "interrupted: the page is closed, and the run continues\n")
    assert is_gone(address)
    assert training.poll() is None
