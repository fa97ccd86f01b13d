"""The live page: the report of a run while it trains, served on this machine alone.

``LiveRun`` reads the run log as it grows and makes the events of the pages that are open. ``LiveServer`` sends the page
and its events. It answers only addresses that begin with a random token, only to a Host that is this machine (a name
of another site that resolves to 127.0.0.1 is refused), only GET and HEAD; sizes, connections and times are limited.
"""

import hmac
import json
import re
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from dorylus.errors import ConfigError, given
from dorylus.report.page import RunFigures, live_page, policy
from dorylus.runs import LogFollower

HOST = "127.0.0.1"
MOST_CONNECTIONS, MOST_STREAMS = 32, 8
MOST_REQUEST_BYTES = 8192
READ_WITHIN_S = 5.0  # a whole request
RETRY_S = 0.2  # after a connection that could not be accepted
SENT_WITHIN_S = 10.0  # an event; a page that takes longer is dropped, and asks again
BEAT_S = 15.0
LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 10.0  # between two looks at the log
MOST_WAITING = 30  # events; a page that is further behind is sent everything again

_REQUEST = re.compile(rb"([A-Z]{1,10}) (/[!-~]*) HTTP/1\.[01]")
_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
            431: "Request Header Fields Too Large", 503: "Service Unavailable"}  # fmt: skip


class LiveRun:
    """The figures of a run whose log grows, and the events for its open pages; any thread may call it.

    ``new_figures`` makes the figures, empty, once there is a log; again where the log begins anew.
    """

    def __init__(self, log: Path, new_figures: Callable[[], RunFigures]) -> None:
        self._log, self._new_figures = LogFollower(log), new_figures
        self._figures: RunFigures | None = None
        self._changed = threading.Condition()
        self._events: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._count = 0  # events so far
        self._num_open = 0
        self.is_closed = False

    @property
    def has_result(self) -> bool:
        """Whether the log holds a result."""
        return self._figures is not None and self._figures.summary.result is not None

    def poll(self) -> bool:
        """Read what is new, and send it to the open pages; whether there was anything."""
        with self._changed:
            is_anew, records = self._log.read()
            if is_anew:
                self._figures = self._new_figures()
            if self._figures is None or not records:
                return False
            for record in records:
                self._figures.add(record)
            if self._num_open:
                content = self._figures.snapshot() if is_anew else self._figures.changes()
                self._send(event("all" if is_anew else "more", content))
            return True

    def open(self) -> "LiveStream":
        """The events for a page that is opened now."""
        with self._changed:
            self._num_open += 1
            return LiveStream(self)

    def close(self) -> None:
        """Send the end to all pages."""
        with self._changed:
            if not self.is_closed:
                self.is_closed = True
                self._send(event("end", {}))
                self._log.close()

    def _send(self, content: bytes) -> None:
        self._events.append(content)
        self._count += 1
        self._changed.notify_all()


class LiveStream:
    """The events for one page: everything first, then what changes."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._at: int | None = None  # the number of events that it has had; None before the first

    def next(self, timeout_s: float) -> list[bytes] | None:
        """The events since the last call, after waiting for one; none in time, an empty list; None after the end."""
        run = self._run
        with run._changed:
            if self._at is not None and not run.is_closed:
                run._changed.wait_for(lambda: run._count != self._at, timeout_s)
            behind = MOST_WAITING + 1 if self._at is None else run._count - self._at
            if not behind:
                return None if run.is_closed else []
            self._at = run._count
            if behind <= len(run._events):
                return list(run._events)[-behind:]
            everything = [] if run._figures is None else [event("all", run._figures.snapshot())]
            return everything + ([event("end", {})] if run.is_closed else [])

    def close(self) -> None:
        """The page is closed."""
        with self._run._changed:
            self._run._num_open -= 1


def pause_s(age_s: float) -> float:
    """How long to wait before the next look at the log, of a page that has been served for so long.

    The page is drawn again as often. Ever more rarely: a page of ten minutes should take no time from the training.
    """
    return min(MOST_PAUSE_S, max(LEAST_PAUSE_S, age_s / 30))


def event(kind: str, content: Mapping[str, object]) -> bytes:
    """A server-sent event; JSON holds no newline."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {text}\n\n".encode(errors="replace")


class HttpRequest(NamedTuple):
    """A request, as far as it matters here."""

    method: str
    path: str
    headers: dict[str, str]


class HttpAnswer(NamedTuple):
    """What is sent back; ``streams``: events follow."""

    status: int
    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"
    streams: bool = False


def parse(head: bytes) -> HttpRequest | None:
    """The request of its first lines; None for one that is malformed, or names a header twice."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    match = _REQUEST.fullmatch(first)
    pairs = [line.partition(b":") for line in lines]
    headers = {name.decode("latin-1").lower(): value.strip().decode("latin-1") for name, _, value in pairs}
    if match is None or len(headers) < len(pairs) or not all(name and colon for name, colon, _ in pairs):
        return None
    return HttpRequest(match[1].decode(), match[2].decode(), headers)


def answer_to(request: HttpRequest | None, token: str, port: int, name: str) -> HttpAnswer:
    """What a request to the server of the run ``name`` is answered."""
    if request is None:
        return HttpAnswer(400, b"malformed request\n")
    if request.headers.get("host") not in (f"{HOST}:{port}", f"localhost:{port}"):
        return HttpAnswer(403, b"this page is for the machine that it is served on\n")
    _, given_token, *rest = request.path.split("/", 2)
    if not hmac.compare_digest(given_token.encode(), token.encode()):
        return HttpAnswer(404, b"not found\n")
    if request.method not in ("GET", "HEAD"):
        return HttpAnswer(405, b"this page can only be read\n")
    if rest == [""]:
        return HttpAnswer(200, live_page(name), "text/html; charset=utf-8")
    if rest == ["events"]:
        return HttpAnswer(200, kind="text/event-stream; charset=utf-8", streams=True)
    return HttpAnswer(404, b"not found\n")


class LiveServer:
    """Serves the page of one run on this machine, from when it is made until it is closed."""

    def __init__(self, run: LiveRun, name: str, port: int = 0) -> None:
        self._run, self._name = run, name
        self._token = secrets.token_urlsafe(24)
        try:
            self._socket = socket.create_server((HOST, port), backlog=16)
        except OSError as error:
            raise ConfigError(
                f"{given('port', port)}: the live page cannot be served there: {error.strerror or error}. Choose "
                f"another port, or leave {given('port')} out to have a free one."
            ) from error
        self.port: int = self._socket.getsockname()[1]
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._streams = threading.BoundedSemaphore(MOST_STREAMS)
        self._connections: set[threading.Thread] = set()
        self._closed = threading.Event()
        self._accepting = threading.Thread(target=self._accept, name="dorylus-live", daemon=True)
        self._accepting.start()

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{HOST}:{self.port}/{self._token}/"

    def close(self) -> None:
        """End all streams with the end of the run, and stop."""
        self._closed.set()
        self._run.close()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        until = time.monotonic() + READ_WITHIN_S
        for thread in [self._accepting, *list(self._connections)]:
            thread.join(max(0.0, until - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed, or too many files are open for now
                if self._closed.wait(RETRY_S):
                    return
                continue
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="dorylus-live-page", daemon=True)
            self._connections.add(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):
                head = _head(connection)
                request = None if head is None else parse(head)
                answer = HttpAnswer(431, b"the request is too long\n") if head is None else self._answer(request)
                is_head = request is not None and request.method == "HEAD"
                if answer.streams and not is_head:
                    self._stream(connection, answer)
                else:
                    self._send(connection, answer, b"" if is_head else answer.body)
        finally:
            self._free.release()
            self._connections.discard(threading.current_thread())

    def _answer(self, request: HttpRequest | None) -> HttpAnswer:
        return answer_to(request, self._token, self.port, self._name)

    def _send(self, connection: socket.socket, answer: HttpAnswer, body: bytes) -> None:
        connection.settimeout(SENT_WITHIN_S)
        connection.sendall(header(answer) + body)

    def _stream(self, connection: socket.socket, answer: HttpAnswer) -> None:
        if not self._streams.acquire(blocking=False):
            return self._send(connection, busy := HttpAnswer(503, b"too many pages of this run are open\n"), busy.body)
        stream = self._run.open()
        try:
            self._send(connection, answer, b"retry: 2000\n\n")
            while (events := stream.next(BEAT_S)) is not None:
                connection.sendall(b"".join(events) or b":\n\n")
        finally:
            stream.close()
            self._streams.release()


def header(answer: HttpAnswer) -> bytes:
    """The first lines of an answer: nothing of it is cached, framed, or loaded from another address."""
    lines = [
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
        f"Content-Type: {answer.kind}",
        f"Content-Security-Policy: {policy(connect=True)}; frame-ancestors 'none'",
        "Cache-Control: no-store",
        "Cross-Origin-Opener-Policy: same-origin",
        "Cross-Origin-Resource-Policy: same-origin",
        "Referrer-Policy: no-referrer",
        "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY",
        "Connection: close",
    ]
    lines += [] if answer.streams else [f"Content-Length: {len(answer.body)}"]
    lines += ["Allow: GET, HEAD"] if answer.status == 405 else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _head(connection: socket.socket) -> bytes | None:
    """The first lines of a request; None where they are too long. It ends in time, however slowly they come."""
    until, head = time.monotonic() + READ_WITHIN_S, b""
    while b"\r\n\r\n" not in head:
        connection.settimeout(max(0.001, until - time.monotonic()))
        piece = connection.recv(MOST_REQUEST_BYTES)
        if not piece:
            raise ConnectionError("the page was closed")
        head += piece
        if len(head) > MOST_REQUEST_BYTES:
            return None
        if time.monotonic() > until:
            raise TimeoutError("the request took too long")
    return head[: head.index(b"\r\n\r\n") + 4]
