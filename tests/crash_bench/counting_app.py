"""Our function behind HTTP, with a counter of its own: each invocation appends a byte to a file."""

import asyncio
import os
from typing import Any

from dorylus.functions.asgi import app as function

TASK_S = 0.1
_counted = os.open(os.environ["COUNTED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """An invocation takes a while, so that some are under way whenever the run is killed."""
    if scope["type"] == "http" and scope["method"] == "POST":
        os.write(_counted, b".")
        await asyncio.sleep(TASK_S)
    await function(scope, receive, send)
