"""The seam between graph servers and whatever runs dense tasks."""

from collections.abc import Callable, Collection
from typing import Protocol

from dorylus.saga.dense import Call, Reply


class TensorPool(Protocol):
    """Runs dense tasks somewhere. Every call given is answered exactly once: by ``done``, or by ``failed``.

    A call that is cancelled is answered at most once, and only by a thread that was about to when it was cancelled.
    ``call.keep`` is a wish: a pool elsewhere cannot keep an autograd graph, and leaves it out of its reply.

    A call runs on one thread of torch's (``torch.set_num_threads(1)``): with more, sums come out in another order, and
    runs that should agree to the last bit do not.
    """

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Take a call; may answer before it returns (in the calling thread) or later (from a thread of its own)."""

    def cancel(self, calls: Collection[Call]) -> None:
        """Let go of these calls, the very objects that were submitted: what waits here is not sent any more.

        What was sent is ended where that can be done. Calls that are answered or unknown are passed over.
        """

    def close(self) -> None:
        """Stop; nothing submitted is answered after this."""
