"""Rows made by a body, or features: held until they are to be seen, then put where others read them."""

import torch

from dorylus import kernels
from dorylus.kernels import Dropout
from dorylus.saga.layer import Rows
from dorylus.saga.stages import Slot
from dorylus.servers.bench import Bench, Matrix
from dorylus.servers.input_rows import InputRows


class Publisher:
    """Puts an interval's rows into the matrices that all intervals share, and reads them there."""

    def __init__(self, bench: Bench, features: InputRows) -> None:
        self._bench, self._features = bench, features
        self._waiting: dict[tuple[Slot, int], Matrix] = {}

    def take(self, slot: Slot, interval: int, epoch: int, rows: Matrix) -> None:
        """Take rows a body made: those that are gathered wait for SC, others are seen at once."""
        self._waiting[slot, interval] = rows
        if not slot.gathered:
            self.publish(slot, interval, epoch)

    def publish(self, slot: Slot, interval: int, epoch: int) -> None:
        """Store an interval's rows of a slot, dropout applied, in the precision it is kept in."""
        bench = self._bench
        begin, end = bench.layout.rows(slot.level, interval)
        columns = slice(slot.first_column, slot.first_column + slot.columns)
        features = slot.source == "features"
        rows = self._features.dense(begin, end, columns) if features else self._waiting.pop((slot, interval))
        target = bench.values(slot)
        if slot.dropout > 0:
            drop = Dropout(slot.dropout, bench.seed, epoch, slot.layer)
            ids = bench.shard.ids[begin:end]
            kernels.dropout(rows, target[begin:end], ids, 0, end - begin, drop=drop, first_column=slot.first_column)
        else:
            bench.store(rows, target, begin, end)

    def rows(self, slot: Slot, begin: int, end: int, epoch: int) -> Rows:
        """Some rows of a slot, as a body reads them."""
        if slot.source == "features" and not slot.gathered:
            return self._features.rows(slot, begin, end, epoch)
        return torch.from_numpy(self._bench.wide(slot, begin, end))
