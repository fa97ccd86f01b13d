"""Invokes the function on AWS Lambda, or on its stand-in on this machine, through boto3.

A frame travels as base64 in JSON, in both directions. Nothing is retried here: wrappers of the pool do that.
Faults never repeat a credential. What an invocation is billed, and whether it was a cold start, is read from the end of
its log. Connections can be closed while an answer is awaited, which boto3 has no method for.
"""

import json
import re
import socket
import threading
from base64 import b64decode, b64encode
from binascii import Error
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

from dorylus.errors import TrainingError
from dorylus.functions import (
    DEFAULT_NAME,
    AwsAccess,
    FunctionConfig,
    LocalFunctions,
    code_of,
    cure,
    error_text,
    is_about_credentials,
    status_of,
)
from dorylus.pools.pool import InvocationResponse, Lost, Throttled, Unavailable

_THROTTLED: Final = frozenset({
    "EC2ThrottledException", "ProvisionedThroughputExceededException", "RequestLimitExceeded", "Throttling",
    "ThrottlingException", "TooManyRequestsException",
})  # fmt: skip
_FOR_NOW: Final = frozenset({"ResourceConflictException", "ResourceNotReadyException", "SnapStartNotReadyException"})
_TOO_LARGE: Final = frozenset({"RequestEntityTooLargeException", "RequestTooLargeException"})
_NOT_REACHED: Final = frozenset({"EndpointConnectionError", "ProxyConnectionError", "SSLError", "NoRegionError"})
_BROKEN: Final = frozenset({  # failures that a retry does not cure
    "Runtime.HandlerNotFound", "Runtime.ImportModuleError", "Runtime.InvalidEntrypoint", "Runtime.MalformedHandlerName",
    "Runtime.UserCodeSyntaxError",
})  # fmt: skip
_KILLED: Final = frozenset({"Runtime.ExitError", "Runtime.OutOfMemory"})
_ANSWER_TOO_LARGE: Final = "Function.ResponseSizeTooLarge"
_MOST_CHARACTERS: Final = 500
_BILLED: Final = re.compile(r'Billed Duration: (\d{1,12}) ms|"billedDurationMs":\s{0,9}(\d{1,12})(?!\d)')
_INIT: Final = re.compile(
    r'Init Duration: (\d{1,12}(?:\.\d{1,9})?) ms|"initDurationMs":\s{0,9}(\d{1,12}(?:\.\d{1,9})?)(?![\d.])'
)
JSON_LIMIT_BYTES: Final = 6_291_556  # of a payload, in each direction
_AROUND_BYTES: Final = 64  # at most, of the JSON around the text
PAYLOAD_LIMIT_BYTES: Final = (JSON_LIMIT_BYTES - _AROUND_BYTES) // 4 * 3
CONNECT_S: Final = 10.0
_MOST_CLIENTS: Final = 8


def fault_of_error(error: Exception, function: str, timeout_s: float) -> TrainingError:
    """The fault behind what boto3 raised."""
    code, name = code_of(error), type(error).__name__
    if code in _THROTTLED:
        return Throttled(_retry_after_s(error), f"{function} takes no more invocations for now: {error_text(error)}")
    if code == "ResourceNotFoundException":
        return Unavailable(f"there is no function {function} in this region: dorylus functions deploy makes it.")
    if code in _TOO_LARGE:
        return TrainingError(f"an invocation of {function} was too large: {error_text(error)} Use more intervals.")
    if is_about_credentials(error) or name in _NOT_REACHED:
        return Unavailable(f"{function} cannot be invoked: {error_text(error)} {cure(error)}".rstrip())
    if name in ("ReadTimeoutError", "ConnectTimeoutError"):
        return Lost(f"{function} gave no answer within {timeout_s:g} s.")
    if not code or code in _FOR_NOW or status_of(error) >= 500:
        return Lost(f"an invocation of {function} came to nothing: {error_text(error)}")
    return Unavailable(f"{function} cannot be invoked: {error_text(error)} {cure(error)}".rstrip())


def fault_of_answer(content: bytes, function: str) -> TrainingError:
    """The fault behind an answer that is the function's failure: it crashed, ran out of time or could not start."""
    kind, message = _failure(content)
    if kind == _ANSWER_TOO_LARGE:
        return TrainingError(f"an answer of {function} was too large: {message} Use more intervals.")
    if kind in _BROKEN:
        return Unavailable(f"{function} cannot start ({kind}): {message} dorylus functions deploy replaces it.")
    cure = " If it ran out of memory: dorylus functions deploy --memory gives it more." if kind in _KILLED else ""
    return Lost(f"{function} failed on its task ({kind}): {message}{cure}")


def _failure(content: bytes) -> tuple[str, str]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        parsed = None
    failure: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
    message = str(failure.get("errorMessage") or "it said nothing").rstrip(". ")
    return str(failure.get("errorType") or "unknown")[:_MOST_CHARACTERS], f"{message[:_MOST_CHARACTERS]}."


def _retry_after_s(error: Any) -> float | None:
    """The seconds that the service asks to wait before the next call, if it says so."""
    seconds = error.response.get("retryAfterSeconds")
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return max(0.0, float(headers.get("retry-after") or seconds))
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True)
class LambdaReport:
    """Billed milliseconds, those of a cold start included; None where the log does not say."""

    billed_ms: float | None = None
    init_ms: float | None = None
    cold: bool | None = None

    @classmethod
    def of(cls, log: str | None) -> "LambdaReport":
        """The report in the end of a log, as an invocation's answer brings it: in base64, as text or as JSON."""
        text = _decoded(log)
        billed_ms = _last(_BILLED, text)
        if billed_ms is None:
            return cls()
        init_ms = _last(_INIT, text)
        return cls(billed_ms, init_ms, init_ms is not None)


def _decoded(log: str | None) -> str:
    try:
        return b64decode(log or "").decode(errors="replace")
    except (Error, ValueError):
        return ""


def _last(pattern: re.Pattern[str], text: str) -> float | None:
    matches = [first or second for first, second in pattern.findall(text)]
    return float(matches[-1]) if matches else None


class Connections:
    """The open connections of boto3 clients, which any thread may close."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: WeakSet[Any] = WeakSet()
        self.closed = False

    def watch(self, client: Any) -> None:
        """Track every connection that the client opens from now on."""
        # Not part of boto3's interface: where this has moved, closing waits for answers instead of cutting them off.
        session: Any = getattr(getattr(client, "_endpoint", None), "http_session", None)
        maker: Any = getattr(session, "_manager", None)
        if maker is not None:
            pools = maker.pool_classes_by_scheme
            maker.pool_classes_by_scheme = {scheme: self._watched(pool) for scheme, pool in pools.items()}

    def close(self) -> None:
        """Close all connections, and each that is opened later."""
        with self._lock:
            self.closed = True
            connections = list(self._open)
        for connection in connections:
            _cut(connection)

    def _opened(self, connection: Any) -> None:
        with self._lock:
            self._open.add(connection)
            closed = self.closed
        if closed:
            _cut(connection)

    def _watched(self, pool: Any) -> Any:
        """A subclass of this connection pool that tracks its connections."""
        opened = self._opened

        class AbortableConnection(pool.ConnectionCls):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                opened(self)

        return type(pool.__name__, (pool,), {"ConnectionCls": AbortableConnection})


def _cut(connection: Any) -> None:
    sock = getattr(connection, "sock", None)
    if sock is not None:
        with suppress(OSError):  # it is closed already
            sock.shutdown(socket.SHUT_RDWR)


class LambdaInvoker:
    """Invokes a function by its name (or ARN), from any number of threads; ``max_connections`` are kept open.

    ``reports``: whether answers bring the end of the function's log, which has the billed time.
    """

    payload_limit_bytes: int | None = PAYLOAD_LIMIT_BYTES

    def __init__(
        self, access: AwsAccess, function: str = DEFAULT_NAME, *, max_connections: int = 256, reports: bool = True
    ) -> None:
        self._access, self._function, self._reports = access, function, reports
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._clients: dict[float, Any] = {}
        self._connections = Connections()

    def invoke(self, request: bytes, timeout_s: float) -> InvocationResponse:
        """Invoke the function and wait for its answer."""
        payload = b'{"frame":"' + b64encode(request) + b'"}'
        log = {"LogType": "Tail"} if self._reports else {}
        try:
            client = self._client(timeout_s)
            answer = client.invoke(FunctionName=self._function, Payload=payload, **log)
            content = answer["Payload"].read(JSON_LIMIT_BYTES + 1)
        except Lost:
            raise
        except Exception as error:
            if self._connections.closed:
                raise Lost("the pool is closed: the invocation was abandoned.") from None
            raise fault_of_error(error, self._function, timeout_s) from None  # its cause may contain a credential
        if len(content) > JSON_LIMIT_BYTES:
            raise Lost(f"the function answered with more than the {JSON_LIMIT_BYTES} bytes a payload may have.")
        report = LambdaReport.of(answer.get("LogResult"))
        if "FunctionError" in answer:
            raise fault_of_answer(content, self._function)
        return InvocationResponse(_frame(content), report.billed_ms, report.cold, report.init_ms)

    def close(self) -> None:
        """Close the connections on which answers are awaited."""
        self._connections.close()
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _client(self, timeout_s: float) -> Any:
        """The client with this time-out: botocore sets it for all calls of a client alike."""
        with self._lock:
            if self._connections.closed:
                raise Lost("the pool is closed: it invokes nothing more.")
            if timeout_s not in self._clients:
                client = self._access.client(
                    "lambda",
                    connect_timeout=min(CONNECT_S, timeout_s),
                    read_timeout=timeout_s,
                    max_pool_connections=self._max_connections,
                    retries={"total_max_attempts": 1, "mode": "standard"},
                    tcp_keepalive=True,
                )
                self._connections.watch(client)
                if len(self._clients) >= _MOST_CLIENTS:
                    self._clients.pop(next(iter(self._clients)))
                self._clients[timeout_s] = client
            return self._clients[timeout_s]


class LocalInvoker(LambdaInvoker):
    """Invokes the function on a stand-in of its own, which is stopped when the invoker is closed."""

    def __init__(self, local: LocalFunctions, **settings: Any) -> None:
        super().__init__(local.access, local.config.name, **settings)
        self._local = local

    def close(self) -> None:
        """Also stop the stand-in and its functions."""
        super().close()
        self._local.close()


def local_functions_invoker(config: FunctionConfig | None = None, **settings: Any) -> LocalInvoker:
    """An invoker whose service, ministack, is started for it on this machine and ends when it is closed."""
    return LocalInvoker(LocalFunctions(config), **settings)


def _frame(content: bytes) -> bytes:
    try:
        return b64decode(json.loads(content)["frame"], validate=True)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Lost("the function's answer is no frame: is it another function?") from error
