"""The seam between dense tasks and a service that runs functions: one request, one answer."""

from dataclasses import dataclass
from typing import Protocol

from dorylus.wire import Buffer


@dataclass(frozen=True)
class InvocationResponse:
    """What an invocation gave back; the service may say what it bills for it, whether it was a cold start, and how much
    of what it bills that took.
    """

    content: Buffer
    billed_ms: float | None = None
    cold: bool | None = None
    init_ms: float | None = None


class Invoker(Protocol):
    """Runs the function on a request, from whatever thread asks; many at a time.

    Raises the faults of :mod:`dorylus.pools.pool`. ``payload_limit_bytes`` is what a request and an answer may each
    have at most, None for no limit.
    """

    payload_limit_bytes: int | None

    def invoke(self, request: bytes, timeout_s: float) -> InvocationResponse:
        """Invoke the function and wait for its answer, at most so long."""

    def close(self) -> None:
        """Stop: what is under way fails soon."""
