"""The cotangents of an interval's rows: what dense tasks and gathers have added to them until a task takes them."""

from collections import defaultdict
from collections.abc import Mapping

from dorylus.backends import Dropout, Matrix
from dorylus.saga import Slot
from dorylus.servers.graph.edges import EdgeGather
from dorylus.servers.graph.pass_context import Grad, PassContext


class Cotangents:
    """Sums of the parts that make up a slot's cotangent, interval by interval.

    ``sums`` are those that edges add to. ``begun_by`` names dense steps whose part waits for others: in the rows of
    the slot's own matrix, which, unlike a task's reply, may lie in a file.
    """

    def __init__(self, context: PassContext, sums: Mapping[Slot, EdgeGather], begun_by: Mapping[Slot, int]) -> None:
        self._context, self._sums, self._begun_by = context, sums, begun_by
        self._own: dict[tuple[Slot, int], list[Matrix]] = defaultdict(list)
        self._begun: set[tuple[Slot, int]] = set()

    def __len__(self) -> int:
        """The number of intervals whose parts have not been taken yet."""
        return len(self._own) + len(self._begun)

    def add(self, step: int, slot: Slot, interval: int, part: Matrix) -> None:
        """A dense step's contribution: the first rows of the interval, if not all."""
        if self._begun_by.get(slot) != step:
            self._own[slot, interval].append(part)
            return
        begin, end = self._context.layout.rows(slot.level, interval)
        rows = self._context.cotangent(slot)[begin:end]
        self._context.backend.store(part, rows[: len(part)])
        self._context.backend.clear(rows[len(part) :])
        self._begun.add((slot, interval))

    def take_begun(self, slot: Slot, interval: int) -> bool:
        """Whether the rows of a slot's matrix hold a part already, which is now to be added to or taken."""
        begun = (slot, interval) in self._begun
        self._begun.discard((slot, interval))
        return begun

    def take_own(self, slot: Slot, interval: int) -> Matrix | None:
        """What dense tasks contributed to the cotangent of an interval's rows; the first rows, if not all."""
        parts = self._own.pop((slot, interval), [])
        return None if not parts else self._sum(parts)

    def take(self, slot: Slot, interval: int, epoch: int) -> Matrix | None:
        """The cotangent of what was computed for an interval's rows, behind dropout; None if no task read them."""
        grad = self._total(slot, interval)
        if grad is not None and slot.dropout > 0:
            drop = Dropout(slot.dropout, self._context.seed, epoch, slot.layer)
            begin, end = self._context.layout.rows(slot.level, interval)
            ids = self._context.ids[begin:end]
            self._context.backend.dropout(grad, grad, ids, drop, first_column=slot.first_column)
        return grad

    def _total(self, slot: Slot, interval: int) -> Matrix | None:
        begin, end = self._context.layout.rows(slot.level, interval)
        self.take_begun(slot, interval)
        own = self.take_own(slot, interval)
        if slot in self._sums:
            grad = self._sums[slot].take(slot, interval)
        elif Grad(slot) in self._context.matrices:
            grad = self._context.cotangent(slot)[begin:end]
        elif own is None or len(own) == end - begin:
            return own
        else:
            grad = self._context.backend.allocate(end - begin, slot.columns, zero=True)
        if own is not None:
            self._context.backend.add(own, grad[: len(own)])
        return grad

    def _sum(self, parts: list[Matrix]) -> Matrix:
        longest = max(parts, key=len)
        if len(parts) == 1:
            return longest
        total = self._context.backend.copy(longest)
        for part in parts:
            if part is not longest:
                self._context.backend.add(part, total[: len(part)])
        return total
