"""Functions behind HTTP: Cloud Run, Knative, OpenFaaS, or any server of :mod:`dorylus.functions.asgi`.

A request is a POST with a frame as its body. Connections are kept open and used again. The token, where the service
needs one, comes from the environment and is used in the header of the request only.
"""

import os
import socket
import ssl
import threading
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from typing import Any, Final
from urllib.parse import urlsplit

from dorylus.errors import ConfigError, given
from dorylus.functions import TOKEN_VARIABLE
from dorylus.pools.pool import InvocationResponse, Lost, PoolFault, Throttled, Unavailable
from dorylus.wire import DEFAULT

PAYLOAD_LIMIT_BYTES: Final = 32 << 20  # what Cloud Run takes, and most others too
CHUNK_BYTES: Final = 1 << 20
_FORM: Final = "use http://host or https://host, with port and path if need be"


class HttpInvoker:
    """Invokes the function at a URL, as many at a time as there are threads that invoke it.

    ``token_variable`` names the environment variable with the bearer token; if it is not set, none is sent.
    """

    def __init__(
        self,
        url: str,
        *,
        token_variable: str = TOKEN_VARIABLE,
        payload_limit_bytes: int | None = PAYLOAD_LIMIT_BYTES,
    ) -> None:
        self.payload_limit_bytes = payload_limit_bytes
        self._address = _ServiceAddress(url)
        token = _token(token_variable)
        self._headers = {"Content-Type": "application/octet-stream"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._busy: set[HTTPConnection] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"HttpInvoker({self._address.text!r})"

    def invoke(self, request: bytes, timeout_s: float) -> InvocationResponse:
        """Post a frame and wait for the answer."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            connection, is_new = self._take()
            try:
                status, retry_after, content = self._exchange(connection, request, deadline_s)
            except (OSError, HTTPException) as error:
                connection.close()
                with self._lock:
                    again = not is_new and not isinstance(error, TimeoutError) and not self._closed
                if again:  # the service closes idle connections: the request was not processed
                    continue
                raise fault_of_error(error, self._address.text) from error
            finally:
                self._release(connection)
            if status == 200:
                return InvocationResponse(content)
            raise fault_of(status, retry_after, self._address.text)

    def close(self) -> None:
        """Close all connections, also those with an answer in progress."""
        with self._lock:
            self._closed = True
            idle, busy = self._idle, list(self._busy)
            self._idle = []
        for connection in idle:
            connection.close()
        for connection in busy:
            if connection.sock is not None:
                _shut_down(connection.sock)

    def _exchange(self, connection: HTTPConnection, request: bytes, deadline_s: float) -> tuple[int, str | None, bytes]:
        _set_timeout(connection, deadline_s)
        connection.request("POST", self._address.path, request, self._headers)
        _set_timeout(connection, deadline_s)
        with connection.getresponse() as response:
            content = _read(connection, response, deadline_s)
            if response.will_close:
                connection.close()
            return response.status, response.getheader("Retry-After"), content

    def _take(self) -> tuple[HTTPConnection, bool]:
        """An open connection that is idle, or a new one (True)."""
        with self._lock:
            if self._closed:
                raise Lost(f"the connections to {self._address.text} were closed.")
            is_new = not self._idle
            connection = self._address.connection() if is_new else self._idle.pop()
            self._busy.add(connection)
        return connection, is_new

    def _release(self, connection: HTTPConnection) -> None:
        """Keep a connection for the next request, if it is still open."""
        with self._lock:
            self._busy.discard(connection)
            if connection.sock is not None and not self._closed:
                self._idle.append(connection)
                return
        connection.close()


class _ServiceAddress:
    """The parts of a URL: scheme, host, port and path."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError:  # it may hold a secret: not even its error is printed
            raise ConfigError(f"{given('function_url')} is no address: {_FORM}.") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{given('function_url', url.partition('?')[0])}: {_FORM}.")
        if parts.username or parts.password or parts.query:
            raise ConfigError(
                f"{given('function_url')} holds a user, a password or a query, which would be written into the run's "
                f"folder: put the service's token into {TOKEN_VARIABLE}."
            )
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError(
                f"{given('function_url', url)}: {_FORM}; what is neither letter nor digit is written as %20."
            )
        self._host, self._tls = parts.hostname, parts.scheme == "https"
        self._context = ssl.create_default_context() if self._tls else None
        self.path = parts.path or "/"
        self.text = f"{parts.scheme}://{parts.netloc}{parts.path}"

    def connection(self) -> HTTPConnection:
        """A connection that is not connected yet."""
        connection: HTTPConnection
        if self._tls:
            connection = HTTPSConnection(self._host, self._port, context=self._context)
        else:
            connection = HTTPConnection(self._host, self._port)
        connection.response_class = partial(_Response, connection)  # type: ignore[assignment]
        return connection


class _Response(HTTPResponse):
    """An answer that is read until its connection's deadline, also if it comes byte by byte."""

    def __init__(self, connection: HTTPConnection, sock: socket.socket, *args: Any, **settings: Any) -> None:
        super().__init__(sock, *args, **settings)
        self.fp = BufferedReader(_UntilDeadline(connection, sock, self.fp))


class _UntilDeadline(RawIOBase):
    """The bytes of a socket; each read has the remaining time as its time-out."""

    def __init__(self, connection: HTTPConnection, sock: socket.socket, inner: BufferedReader) -> None:
        super().__init__()
        self._connection, self._sock, self._inner = connection, sock, inner

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        _set_timeout(self._connection, self._connection.deadline_s)  # type: ignore[attr-defined]
        self._sock.settimeout(self._connection.timeout)
        return self._inner.raw.readinto(room) or 0

    def close(self) -> None:
        self._inner.close()
        super().close()


def _token(variable: str) -> str:
    """The token in an environment variable, if there is one, without the newline that a file may end with."""
    token = os.environ.get(variable, "").strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"what {variable} holds is no token: a token is one word of ASCII letters, digits and signs.")
    return token


def fault_of_error(error: OSError | HTTPException, url: str) -> PoolFault:
    """The fault behind a request without an answer: the service is not there, or the call was lost."""
    cure = f"start the functions there, or give the right {given('function_url')}"
    if isinstance(error, ConnectionRefusedError):
        return Unavailable(f"nothing answers at {url}: {cure}.")
    if isinstance(error, socket.gaierror):
        return Unavailable(f"nothing answers at {url}, since no machine of that name is known: {cure}.")
    return Lost(f"{url} did not answer: {type(error).__name__}: {error}")


def fault_of(status: int, retry_after: str | None, url: str) -> PoolFault:
    """The fault behind a status other than 200."""
    if status == 429:
        return Throttled(seconds_of(retry_after), f"{url} takes no more requests for now (429).")
    if status >= 500 or status == 408:
        return Lost(f"{url} failed with status {status}.")
    cures = {
        401: f"put the service's token into {TOKEN_VARIABLE}, where you train and where the functions run",
        403: f"check that the token in {TOKEN_VARIABLE} may invoke this service",
        404: f"check the path in {given('function_url')}, and that the function is deployed",
        413: f"use {given('data_path', 'direct')}, or a smaller payload limit",
    }
    return Unavailable(f"{url} refuses us with status {status}: {cures.get(status, 'look into the service')}.")


def seconds_of(retry_after: str | None) -> float | None:
    """A Retry-After header in seconds; it holds those, or a date."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None


def _read(connection: HTTPConnection, response: HTTPResponse, deadline_s: float) -> bytes:
    parts, size = [], 0
    while chunk := response.read(CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if size > DEFAULT.max_frame_bytes:  # a shorter answer that is no frame is refused where it is read
            raise HTTPException(f"the answer is longer than the {DEFAULT.max_frame_bytes} bytes a frame may have")
        _set_timeout(connection, deadline_s)
    return b"".join(parts)


def _set_timeout(connection: HTTPConnection, deadline_s: float) -> None:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the time for an answer is over")
    connection.timeout, connection.deadline_s = left_s, deadline_s  # type: ignore[attr-defined]
    if connection.sock is not None:
        connection.sock.settimeout(left_s)


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):  # the peer has closed it
        sock.shutdown(socket.SHUT_RDWR)
