"""The cotangents of an interval's rows: what dense tasks and gathers have added to them until somebody takes them."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import Dropout, native
from dorylus.saga import Slot
from dorylus.servers.graph.edges import EdgeGather
from dorylus.servers.graph.pass_context import Grad, PassContext

Matrix = NDArray[Any]


class Cotangents:
    """Sums of the parts that make up a slot's cotangent, interval by interval.

    ``sums`` are those that edges add to. ``begun_by`` names dense steps whose part waits for others: in the rows of
    the slot's own matrix, which, unlike a task's reply, may lie in a file.
    """

    def __init__(self, bench: PassContext, sums: Mapping[Slot, EdgeGather], begun_by: Mapping[Slot, int]) -> None:
        self._bench, self._sums, self._begun_by = bench, sums, begun_by
        self._own: dict[tuple[Slot, int], list[Matrix]] = defaultdict(list)
        self._begun: set[tuple[Slot, int]] = set()

    def __len__(self) -> int:
        """How many intervals' parts wait to be taken."""
        return len(self._own) + len(self._begun)

    def add(self, step: int, slot: Slot, interval: int, part: Matrix) -> None:
        """A dense step's contribution: the first rows of the interval, if not all."""
        if self._begun_by.get(slot) != step:
            self._own[slot, interval].append(part)
            return
        begin, end = self._bench.layout.rows(slot.level, interval)
        rows = self._bench.cotangent(slot)[begin:end]
        rows[: len(part)], rows[len(part) :] = part, 0
        self._begun.add((slot, interval))

    def take_begun(self, slot: Slot, interval: int) -> bool:
        """Whether the rows of a slot's matrix hold a part already, which is now to be added to or taken."""
        begun = (slot, interval) in self._begun
        self._begun.discard((slot, interval))
        return begun

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
            native.dropout(grad, grad, ids, 0, end - begin, drop=drop, first_column=first)
        return grad

    def _total(self, slot: Slot, interval: int) -> Matrix | None:
        begin, end = self._bench.layout.rows(slot.level, interval)
        self.take_begun(slot, interval)
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
