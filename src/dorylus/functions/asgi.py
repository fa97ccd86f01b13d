"""The entry point on plain HTTP: an ASGI application for any server that runs those (uvicorn, hypercorn).

    uvicorn dorylus.functions.asgi:app --host 127.0.0.1 --port 8080

``POST /`` takes a frame as its body and answers with one; ``GET /health`` says that the process is up. Where
DORYLUS_FUNCTION_TOKEN is set in the environment, requests without that token are refused. Tasks run on threads, one per
core.
"""

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dorylus.functions.handler import Handler, of_this_process
from dorylus.functions.invocation import TOKEN_VARIABLE
from dorylus.wire import DEFAULT, MAGIC

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App:
    """Answers HTTP requests with the handler of this process."""

    def __init__(self, handler: Handler | None = None, max_bytes: int = DEFAULT.max_frame_bytes) -> None:
        self._handler, self._max_bytes = handler, max_bytes
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="dorylus-task")

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """The ASGI entry point: one HTTP request, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            status, content = await self._answer(scope, receive)
            await _respond(send, status, content)

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive) -> tuple[int, bytes]:
        if (scope["method"], scope["path"]) == ("GET", "/health"):
            return 200, b"ok"
        if scope["path"] != "/":
            return 404, b"no such path: tasks go to /"
        if scope["method"] != "POST":
            return 405, b"tasks are posted"
        if not _is_authorised(scope["headers"]):
            return 401, b"the bearer token is missing or wrong"
        body = await self._body(receive)
        if body is None:
            return 413, b"the body is longer than a frame may be"
        run = asyncio.get_running_loop().run_in_executor
        return 200, await run(self._threads, (self._handler or of_this_process()).handle, body)

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None if it is too long."""
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_bytes:
                return None
            more = message.get("more_body", False)
        return b"".join(parts)

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        self.close()
        await send({"type": "lifespan.shutdown.complete"})


def _is_authorised(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        return True
    given = next((value for name, value in headers if name.lower() == b"authorization"), b"")
    return hmac.compare_digest(given, b"Bearer " + token.encode())


async def _respond(send: Send, status: int, content: bytes) -> None:
    kind = b"application/octet-stream" if content.startswith(MAGIC) else b"text/plain"
    headers = [(b"content-type", kind), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


app = App()
