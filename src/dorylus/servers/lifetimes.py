"""When a matrix is free: as soon as the last task that reads it this epoch is done."""

import threading
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from dorylus.saga.stages import Slot
from dorylus.saga.table import Steps
from dorylus.servers.bench import Extra, Grad, Published
from dorylus.servers.matrices import Matrices

EXTRAS = ("lse", "a_pos", "out_pos", "ties")
PUBLISHED = ("cotangent", "share", "out", "delta", "lse", "s_dst")


def last_readers(steps: Steps, results: Collection[Slot] = frozenset()) -> dict[Any, frozenset[int]]:
    """For every matrix that is given back in an epoch, the steps that have to be done with it first.

    ``results`` are read when the epoch is over, and stay.
    """
    found: dict[Any, frozenset[int]] = {Grad(slot): readers for slot, readers in steps.grad_readers.items()}
    goes = (each for each in steps.readers if (each.source == "computed" or each.dropout > 0) and each not in results)
    return found | {slot: steps.readers[slot] for slot in goes}


def companions(name: Any) -> list[Any]:
    """What goes with a matrix: what its gather keeps, with the rows, and what that publishes, with the cotangent."""
    if isinstance(name, Slot):
        return [Extra(name, what) for what in EXTRAS]
    return [Published(name.slot, what) for what in PUBLISHED]


class Lifetimes:
    """Counts, for every matrix, the tasks that will still read it this epoch. For exact epochs only: in others, values
    of the epoch before are read too."""

    def __init__(
        self, steps: Steps, num_intervals: int, matrices: Matrices, results: Collection[Slot] = frozenset()
    ) -> None:
        self._matrices = matrices
        self._lock = threading.Lock()
        self._counts: dict[Any, int] = {}
        self._reads: dict[int, list[Any]] = defaultdict(list)
        for name, readers in last_readers(steps, results).items():
            self._counts[name] = len(readers) * num_intervals
            for step in readers:
                self._reads[step].append(name)
        self._left = dict(self._counts)

    def finished(self, step: int) -> None:
        """One task of this step is done."""
        for name in self._reads.get(step, ()):
            with self._lock:
                self._left[name] -= 1
                last = self._left[name] == 0
                if last:
                    self._left[name] = self._counts[name]
            if last:
                self._matrices.release([name, *companions(name)])
