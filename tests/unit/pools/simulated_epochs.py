"""Epochs of a graph server in simulated time: sparse tasks on its cores, dense ones on a pool."""

from collections import deque
from dataclasses import dataclass
from functools import partial

from dorylus.pipeline import Kind, Task
from dorylus.saga.dense import Call, Mode


@dataclass
class Epochs:
    """Runs epochs: of every interval, ``steps`` times a sparse task of ``sparse_s`` on one of ``cores``, then a call.

    ``barrier``: no interval takes its next step before all have finished the last one.
    """

    clock: object
    intervals: int = 100
    steps: int = 4
    sparse_s: float = 0.0
    cores: int = 2
    barrier: bool = True

    def run(self, pool, epoch):
        """Seconds one epoch takes."""
        start = self.clock.now()
        self.pool, self.epoch = pool, epoch
        self.ready, self.busy, self.finished = deque(), 0, 0
        self.at = [0] * self.steps
        for interval in range(self.intervals):
            self._begin(interval, 0)
        while self.finished < self.intervals:
            assert self.clock.step(), "nothing is to come, and the epoch is not over"
        return self.clock.now() - start

    def _begin(self, interval, step):
        if self.sparse_s == 0:
            self._call(interval, step)
        else:
            self.ready.append((interval, step))
            self._take()

    def _take(self):
        while self.ready and self.busy < self.cores:
            self.busy += 1
            self.clock.call_later(self.sparse_s, partial(self._made, *self.ready.popleft()))

    def _made(self, interval, step):
        self.busy -= 1
        self._call(interval, step)
        self._take()

    def _call(self, interval, step):
        task = Task(self.epoch, step, interval, step, Kind.APPLY_VERTEX)
        call = Call(task, Mode.FORWARD, body=None, weights={}, inputs=())
        self.pool.submit(call, lambda reply: self._answered(interval, step), self._failed)

    def _failed(self, error):
        raise AssertionError(error)

    def _answered(self, interval, step):
        self.at[step] += 1
        if step + 1 == self.steps:
            self.finished += 1
        elif not self.barrier:
            self._begin(interval, step + 1)
        elif self.at[step] == self.intervals:
            for each in range(self.intervals):
                self._begin(each, step + 1)
