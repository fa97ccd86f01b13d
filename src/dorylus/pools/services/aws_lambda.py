"""Invokes the function on AWS Lambda, or on its stand-in on this machine, through boto3.

A frame travels as base64 in JSON, both ways. Nothing is tried again here: that is for the wrappers of any pool.
"""

import json
import threading
from base64 import b64decode, b64encode
from typing import Any, Final

from dorylus.functions.deploy.access import Access
from dorylus.functions.deploy.config import DEFAULT_NAME, FunctionConfig
from dorylus.functions.deploy.local import LocalFunctions
from dorylus.pools.faults import Lost
from dorylus.pools.services.aborting import Connections
from dorylus.pools.services.aws_refusals import fault_of_answer, fault_of_error
from dorylus.pools.services.aws_report import Report
from dorylus.pools.services.invoker import Answer

JSON_LIMIT_BYTES: Final = 6_291_556  # of a payload, each way
_AROUND_BYTES: Final = 64  # at most, of the JSON around the text
PAYLOAD_LIMIT_BYTES: Final = (JSON_LIMIT_BYTES - _AROUND_BYTES) // 4 * 3
CONNECT_S: Final = 10.0
_MOST_CLIENTS: Final = 8


class LambdaInvoker:
    """Invokes a function by its name (or ARN), from any number of threads; ``max_connections`` are kept open.

    ``reports``: asks for the end of the function's log with each answer, where AWS says what it bills.
    """

    payload_limit_bytes: int | None = PAYLOAD_LIMIT_BYTES

    def __init__(
        self, access: Access, function: str = DEFAULT_NAME, *, max_connections: int = 256, reports: bool = True
    ) -> None:
        self._access, self._function, self._reports = access, function, reports
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._clients: dict[float, Any] = {}
        self._connections = Connections()

    def invoke(self, request: bytes, timeout_s: float) -> Answer:
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
            raise fault_of_error(error, self._function, timeout_s) from None  # what it came from may show a credential
        if len(content) > JSON_LIMIT_BYTES:
            raise Lost(f"the function answered with more than the {JSON_LIMIT_BYTES} bytes a payload may have.")
        report = Report.of(answer.get("LogResult"))
        if "FunctionError" in answer:
            raise fault_of_answer(content, self._function)
        return Answer(_frame(content), report.billed_ms, report.cold, report.init_ms)

    def close(self) -> None:
        """Cut the connections that answers are awaited on."""
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
    """Invokes the function on a stand-in of its own, which ends with it."""

    def __init__(self, local: LocalFunctions, **settings: Any) -> None:
        super().__init__(local.access, local.config.name, **settings)
        self._local = local

    def close(self) -> None:
        """End the stand-in and its functions, too."""
        super().close()
        self._local.close()


def local_functions_invoker(config: FunctionConfig | None = None, **settings: Any) -> LocalInvoker:
    """An invoker whose service, ministack, is started for it on this machine and ends when it is closed."""
    return LocalInvoker(LocalFunctions(config), **settings)


def _frame(content: bytes) -> bytes:
    try:
        return b64decode(json.loads(content)["frame"], validate=True)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Lost("the function answered with something else than a frame: is it another function?") from error
