"""The seam between graph servers and whatever runs dense tasks."""

from collections.abc import Callable
from typing import Protocol

from dorylus.saga.dense import Call, Reply


class TensorPool(Protocol):
    """Runs dense tasks somewhere. Every call given is answered exactly once: by ``done``, or by ``failed``.

    ``call.keep`` is a wish: a pool elsewhere cannot keep an autograd graph, and leaves it out of its reply.

    A call runs on one thread of torch's (``torch.set_num_threads(1)``): with more, sums come out in another order, and
    runs that should agree to the last bit do not.
    """

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Take a call; may answer before it returns (in the calling thread) or later (from a thread of its own)."""

    def close(self) -> None:
        """Stop; nothing submitted is answered after this."""
