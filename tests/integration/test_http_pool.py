"""Runs whose dense tasks are posted to a real HTTP server, and how its answers are interpreted."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from function_runs import TOLERANCE, graph, losses_here, losses_on, model

import dorylus
from dorylus.functions.invocation import TOKEN_VARIABLE
from dorylus.functions.program_cache import ProgramCache
from dorylus.pools.functions.functions_pool import functions_pool
from dorylus.pools.functions.invocations import FunctionsConfig
from dorylus.pools.http import HttpInvoker
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import Lost, PoolFault, Throttled, Unavailable
from dorylus.wire.frames import pack, unpack
from functions_bench.services import made_with

DEADLINE_S = 30.0
CLOSING_S = 10.0  # to start and to end a run, on a busy machine
TOKEN = "t0ken-of-the-test"
HELLO = b"".join(pack({"task": "t", "program": "unknown"}, {}))


@pytest.fixture(scope="module")
def server():
    """The URL of uvicorn with our application, which requires a token."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-m", "uvicorn", "dorylus.functions.asgi:app", "--log-level", "warning"]
        process = subprocess.Popen(
            [*command, "--fd", str(listening.fileno())],
            pass_fds=[listening.fileno()],
            env={**os.environ, TOKEN_VARIABLE: TOKEN},
        )
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    yield url
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) in (0, -signal.SIGTERM)


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)


@pytest.fixture(scope="module")
def programs():
    """Exports take seconds: all tests of the session share them."""
    return ProgramCache()


@pytest.mark.parametrize("path", ["inline", "direct"])
def test_a_run_gives_the_losses_of_threads(server, token, programs, path):
    pool = functions_pool(HttpInvoker(server), FunctionsConfig(data_path=path), cache=programs)
    assert losses_on(pool, "gcn") == pytest.approx(losses_here("gcn"), abs=TOLERANCE)


def test_auto_takes_the_direct_path_to_a_server_that_can_reach_us(server, token, programs):
    pool = functions_pool(HttpInvoker(server), cache=programs)
    losses_on(pool, "gcn", epochs=1)
    assert pool.data_path == "direct"


def test_a_request_without_a_token_is_refused_with_the_place_for_it(server):
    invoker = HttpInvoker(server)
    with pytest.raises(Unavailable, match=f"status 401: put the service's token into {TOKEN_VARIABLE}"):
        invoker.invoke(HELLO, DEADLINE_S)
    invoker.close()


def test_the_token_is_in_no_message_repr_or_log(server, monkeypatch, caplog):
    monkeypatch.setenv(TOKEN_VARIABLE, "wr0ng")
    invoker = HttpInvoker(server)
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable) as caught:
        invoker.invoke(HELLO, DEADLINE_S)
    invoker.close()
    assert "wr0ng" not in f"{caught.value!r}{invoker!r}{caplog.text}"


def test_a_connection_is_used_again(server, token):
    invoker = HttpInvoker(server)
    for _ in range(3):
        assert unpack(invoker.invoke(HELLO, DEADLINE_S).content).header["missing"] == "unknown"
    (connection,) = invoker._idle
    invoker.close()
    assert connection.sock is None


class Service:
    """A server with scripted answers: a list of (status, headers), "hang up" or "hang"."""

    def __init__(self, answers):
        self.answers, self.let_go, self.requested = list(answers), threading.Event(), threading.Event()
        service = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                service.requested.set()
                answer = service.answers.pop(0)
                if answer == "hang":
                    service.let_go.wait(DEADLINE_S)
                if isinstance(answer, str):
                    self.close_connection = True
                    return
                status, headers = answer
                self.send_response(status)
                for name, value in {"Content-Length": "4", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"word")

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        self.invoker = HttpInvoker(f"http://127.0.0.1:{self._server.server_port}/path")
        return self

    def __exit__(self, *_):
        self.let_go.set()
        self.invoker.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.parametrize(
    ("status", "fault"),
    [(500, Lost), (502, Lost), (503, Lost), (408, Lost), (401, Unavailable), (403, Unavailable), (404, Unavailable)],
)
def test_a_status_decides_whether_to_retry(status, fault):
    with Service([(status, {})]) as service, pytest.raises(fault, match=f"{status}"):
        service.invoker.invoke(HELLO, DEADLINE_S)


@pytest.mark.parametrize(
    ("headers", "seconds"), [({}, None), ({"Retry-After": "2.5"}, 2.5), ({"Retry-After": "?"}, None)]
)
def test_a_service_that_throttles_gives_the_time_to_wait(headers, seconds):
    with Service([(429, headers)]) as service:
        with pytest.raises(Throttled) as caught:
            service.invoker.invoke(HELLO, DEADLINE_S)
        assert caught.value.retry_after_s == seconds


def test_a_service_that_hangs_up_is_lost():
    with Service(["hang up"]) as service, pytest.raises(Lost, match="did not answer: RemoteDisconnected"):
        service.invoker.invoke(HELLO, DEADLINE_S)


def test_a_connection_that_the_service_closed_is_dialled_again():
    with Service([(200, {}), "hang up", (200, {})]) as service:
        for _ in range(2):
            assert bytes(service.invoker.invoke(HELLO, DEADLINE_S).content) == b"word"
        assert service.answers == []


def test_a_service_that_does_not_answer_in_time_is_lost():
    with Service(["hang"]) as service, pytest.raises(Lost, match="TimeoutError"):
        service.invoker.invoke(HELLO, 0.2)


@pytest.mark.parametrize("where", ["head", "body"])
def test_a_service_that_goes_on_answering_slowly_is_lost_when_the_time_is_up(where):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n"
    parts = [head + b"X-Long: ", b"x"] if where == "head" else [head + b"\r\n", b"y"]
    let_go = threading.Event()

    def drip(listener):
        with listener.accept()[0] as link, suppress(OSError):
            link.sendall(parts[0])
            for _ in range(1000):
                link.sendall(parts[1])
                if let_go.wait(0.02):
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        invoker = HttpInvoker(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        begun_s = time.monotonic()
        with pytest.raises(Lost, match="TimeoutError"):
            invoker.invoke(HELLO, 0.3)
        assert time.monotonic() - begun_s < 5
        let_go.set()
        invoker.close()
        thread.join(DEADLINE_S)


def test_closing_ends_requests_under_way():
    with Service(["hang"]) as service:
        threading.Timer(0.0, lambda: service.requested.wait(DEADLINE_S) and service.invoker.close()).start()
        with pytest.raises(Lost):
            service.invoker.invoke(HELLO, DEADLINE_S)


@pytest.fixture
def unused_url():
    """A URL where no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_url_without_a_listener_is_unavailable(unused_url):
    invoker = HttpInvoker(unused_url)
    with pytest.raises(Unavailable, match=f"nothing answers at {unused_url}: start the functions there"):
        invoker.invoke(HELLO, DEADLINE_S)
    invoker.close()


def test_a_run_without_its_service_soon_fails_with_the_cure(unused_url):
    began_s = time.monotonic()
    with pytest.raises(
        PoolFault, match=f"dense tasks cannot be run: nothing answers at {unused_url}: start the functio"
    ):
        dorylus.train(graph(), model("gcn"), epochs=1, pool="http", function_url=unused_url)
    assert time.monotonic() - began_s < Policy().refused_after_s + CLOSING_S


def is_listening(port):
    with socket.socket() as dialling:
        return dialling.connect_ex(("127.0.0.1", int(port))) == 0


class ComesBack:
    """Our application on a port of its own, and a sink that ends it after the first epoch and starts it again later."""

    def __init__(self, url, after_s):
        self._port, self._after_s = url.rpartition(":")[2], after_s
        self.process, self.timer = self._start(), threading.Timer(after_s, self._again)

    def write(self, record):
        if record["kind"] == "epoch" and record["epoch"] == 1:
            self.close()
            self.timer.start()

    def close(self):
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def _again(self):
        self.process = self._start()

    def _start(self):
        command = [sys.executable, "-m", "uvicorn", "dorylus.functions.asgi:app", "--log-level", "critical"]
        process = subprocess.Popen([*command, "--port", self._port])
        while not is_listening(self._port):
            time.sleep(0.05)
        return process


def test_a_service_that_has_answered_may_be_gone_for_longer_than_one_that_never_has(unused_url):
    policy = Policy(refused_after_s=0.5, down_after_s=60.0, at_most_s=60.0, backoff_at_most_s=0.5)
    service = ComesBack(unused_url, after_s=4 * policy.refused_after_s)
    settings = {"epochs": 2, "pool": "http", "function_url": unused_url, "data_path": "inline", "sinks": [service]}
    with made_with(policy):
        result = dorylus.train(graph(), model("gcn"), **settings)
    service.timer.join()
    service.close()
    assert len(result.losses) == 2
    assert result.pool["refused"] > 0
