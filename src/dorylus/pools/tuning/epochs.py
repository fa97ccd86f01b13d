"""Where one epoch's calls end and the next one's begin, seen from a pool. Pure.

Every task comes once an epoch. So an epoch has begun when a task comes again; and it is complete, which is better to
know, when every task of the one before has come. The second rule fails where an epoch has fewer tasks than the one
before, as after an evaluation: then the first finds the place again.
"""

from collections.abc import Hashable

from dorylus.pools.tuning.line import Completion


class Epochs:
    """Told of every call that ends: :meth:`begins`, then :meth:`ends`."""

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._missing: set[Hashable] = set()  # what the epoch before had, and this one has not yet

    def begins(self, completion: Completion) -> bool:
        """Whether this call is the first of an epoch, though the one before was not known to be complete."""
        again = _task(completion) in self._seen
        if again:
            self._begin()
        return again

    def ends(self, completion: Completion) -> bool:
        """Whether this call is the last of its epoch."""
        task, expected = _task(completion), bool(self._missing)
        self._seen.add(task)
        self._missing.discard(task)
        over = expected and not self._missing
        if over:
            self._begin()
        return over

    def _begin(self) -> None:
        self._seen, self._missing = set(), set(self._seen)


def _task(completion: Completion) -> Hashable:
    return completion.kind, completion.interval
