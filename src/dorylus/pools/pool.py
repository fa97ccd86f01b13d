"""The protocols of pools, which run dense tasks, and of invokers, which invoke a service's function; and their faults.

:class:`ThreadsPool` is the pool that every machine has: dense tasks run on the graph server's own threads.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dorylus.errors import TrainingError
from dorylus.saga import Call, Reply, dense
from dorylus.wire import Buffer


class TensorPool(Protocol):
    """Runs dense tasks. Every call that is submitted is answered exactly once: by ``done``, or by ``failed``.

    A cancelled call is answered at most once, and only by a thread that had begun to answer it. ``call.keep`` is
    optional to follow: a pool in other processes cannot keep an autograd graph, and replies without one.

    A call runs on one thread of torch (``torch.set_num_threads(1)``): more threads would add in another order, and runs
    that should agree to the last bit would not.
    """

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Take a call; may answer before it returns (in the calling thread) or later (from a thread of its own)."""

    def cancel(self, calls: Collection[Call]) -> None:
        """Cancel these calls, given as the objects that were submitted: those that wait are not sent.

        Those that were sent are stopped where possible. Calls that are answered or unknown are ignored.
        """

    def close(self) -> None:
        """Stop; nothing submitted is answered after this."""


@dataclass(frozen=True)
class PoolHandle:
    """A pool, the figures it reports at the end of a run, and a wait until everything that it started has ended."""

    pool: TensorPool
    figures: Callable[[], Mapping[str, Any]] = dict
    settle: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class InvocationResponse:
    """The answer to an invocation. A service may report what it bills, and whether and how long a cold start took."""

    content: Buffer
    billed_ms: float | None = None
    cold: bool | None = None
    init_ms: float | None = None


class Invoker(Protocol):
    """Runs the function on a request; any thread may invoke it, many at a time.

    Raises the faults below. ``payload_limit_bytes`` is what a request and an answer may each
    have at most, None for no limit.
    """

    payload_limit_bytes: int | None

    def invoke(self, request: bytes, timeout_s: float) -> InvocationResponse:
        """Invoke the function and wait for its answer, up to a time-out."""

    def close(self) -> None:
        """Stop: invocations in progress soon fail."""


class PoolFault(TrainingError):  # noqa: N818 (faults are what services have; errors are what bodies raise)
    """A fault of what runs dense tasks, not of a task."""


class Throttled(PoolFault):
    """The service takes no more calls for now; ``retry_after_s`` is how long it asks to wait, if it does."""

    def __init__(
        self, retry_after_s: float | None = None, message: str = "the service takes no more calls for now."
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Lost(PoolFault):
    """A call has no result, and it is unknown whether it ran: it may be retried."""


class Unavailable(PoolFault):
    """The service is down or refuses access."""


class Exhausted(PoolFault):
    """A call failed at every attempt that the policy allows."""


def name_of(call: Call) -> str:
    """A call as error messages name it."""
    return f"{call.task.kind} of interval {call.task.interval} in epoch {call.task.epoch + 1}"


class ThreadsPool:
    """Runs each call in the thread that submits it."""

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Run the call now."""
        try:
            reply = dense.run(call)
        except Exception as error:  # an error of a user's body goes to the run, not to this thread
            failed(error)
        else:
            done(reply)

    def cancel(self, calls: Collection[Call]) -> None:
        """No call waits: each is answered before ``submit`` returns."""

    def close(self) -> None:
        """Nothing to stop: the threads are the engine's."""
