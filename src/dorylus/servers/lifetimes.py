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


class Lifetimes:
    """Counts, for every matrix, the tasks that will still read it this epoch. For exact epochs only: in others, values
    of the epoch before are read too. ``results`` are read when the epoch is over, and stay."""

    def __init__(
        self, steps: Steps, num_intervals: int, matrices: Matrices, results: Collection[Slot] = frozenset()
    ) -> None:
        self._matrices = matrices
        self._lock = threading.Lock()
        counts: dict[Any, int] = {}
        self._reads: dict[int, list[Any]] = defaultdict(list)
        for slot, readers in steps.readers.items():
            if (slot.source == "computed" or slot.dropout > 0) and slot not in results:
                self._note(slot, readers, num_intervals, counts)
        for slot, readers in steps.grad_readers.items():
            self._note(Grad(slot), readers, num_intervals, counts)
        self._counts = counts
        self._left = dict(counts)

    def _note(self, name: Any, readers: frozenset[int], num_intervals: int, counts: dict[Any, int]) -> None:
        counts[name] = len(readers) * num_intervals
        for step in readers:
            self._reads[step].append(name)

    def finished(self, step: int) -> None:
        """One task of this step is done."""
        for name in self._reads.get(step, ()):
            with self._lock:
                self._left[name] -= 1
                last = self._left[name] == 0
                if last:
                    self._left[name] = self._counts[name]
            if last:
                self._matrices.release([name, *self._companions(name)])

    def _companions(self, name: Any) -> list[Any]:
        """What a gather keeps and publishes for its gradient goes with the cotangent; where there is none, the rows."""
        if isinstance(name, Slot) and Grad(name) in self._counts:
            return []
        slot = name.slot if isinstance(name, Grad) else name
        return [*(Extra(slot, what) for what in EXTRAS), *(Published(slot, what) for what in PUBLISHED)]
