"""The cotangents of an interval's rows: what dense tasks and gathers have added to them until somebody takes them."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus import kernels
from dorylus.kernels import Dropout
from dorylus.saga.stages import Slot
from dorylus.servers.bench import Bench, Grad
from dorylus.servers.edges import EdgeGather

Matrix = NDArray[Any]


class Cotangents:
    """Sums of the parts that make up a slot's cotangent, interval by interval; ``sums`` are those that edges add to."""

    def __init__(self, bench: Bench, sums: Mapping[Slot, EdgeGather]) -> None:
        self._bench, self._sums = bench, sums
        self._own: dict[tuple[Slot, int], list[Matrix]] = defaultdict(list)

    def __len__(self) -> int:
        """How many parts wait to be taken."""
        return len(self._own)

    def add(self, slot: Slot, interval: int, part: Matrix) -> None:
        """A dense task's contribution: the first rows of the interval, if not all."""
        self._own[slot, interval].append(part)

    def take_own(self, slot: Slot, interval: int) -> Matrix | None:
        """What dense tasks contributed to the cotangent of an interval's rows; the first rows, if not all."""
        parts = self._own.pop((slot, interval), [])
        return None if not parts else _sum(parts)

    def take(self, slot: Slot, interval: int, epoch: int) -> Matrix | None:
        """The cotangent of what was computed for an interval's rows, behind their dropout; None if nobody read them."""
        grad = self._total(slot, interval)
        if grad is not None and slot.dropout > 0:
            drop = Dropout(slot.dropout, self._bench.seed, epoch, slot.layer)
            begin, end = self._bench.layout.rows(slot.level, interval)
            ids, first = self._bench.shard.ids[begin:end], slot.first_column
            kernels.dropout(grad, grad, ids, 0, end - begin, drop=drop, first_column=first)
        return grad

    def _total(self, slot: Slot, interval: int) -> Matrix | None:
        begin, end = self._bench.layout.rows(slot.level, interval)
        own = self.take_own(slot, interval)
        if slot in self._sums:
            grad = self._sums[slot].take(slot, interval)
        elif Grad(slot) in self._bench.matrices:
            grad = self._bench.cotangent(slot)[begin:end]
        elif own is None or len(own) == end - begin:
            return own
        else:
            grad = np.zeros((end - begin, slot.columns), np.float32)
        if own is not None:
            grad[: len(own)] += own
        return grad


def _sum(parts: list[Matrix]) -> Matrix:
    longest = max(parts, key=len)
    if len(parts) == 1:
        return longest
    total = longest.copy()
    for part in parts:
        if part is not longest:
            total[: len(part)] += part
    return total
