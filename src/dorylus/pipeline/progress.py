"""One epoch that is open on this server: what each of its tasks still waits for."""

from collections.abc import Iterable

from dorylus.pipeline.messages import Arrived, Report
from dorylus.pipeline.plan import Plan


class Progress:
    """Counts down what every task of one epoch waits for; tasks are numbered as the plan numbers them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._unmet = plan.unmet.copy()
        self._missing = plan.sizes.copy()
        self._left = [len(plan.table.steps)] * plan.width
        self._intervals = plan.width
        self._running: set[int] = set()

    def enter(self, interval: int) -> list[int]:
        """An own interval enters the epoch; gives the tasks that may now run."""
        return self._release(self.plan.gates[interval - self.plan.mine.start])

    def finish(self, step: int, interval: int) -> list[int] | None:
        """A task of this server is done; gives those that may now run, or None where it was not running."""
        if interval not in self.plan.mine:
            return None
        local = interval - self.plan.mine.start
        task = step * self.plan.width + local
        if task not in self._running:
            return None
        self._running.remove(task)
        self._left[local] -= 1
        self._intervals -= self._left[local] == 0
        return self._done(step, interval)

    def hear(self, report: Report) -> list[int]:
        """A peer reports; gives the tasks that may now run."""
        if isinstance(report, Arrived):
            return self._done(report.task.step, report.task.interval)
        return [] if report.step is None else self._release(self.plan.told.get((report.step, report.server), ()))

    def step_is_finished(self, step: int, server: int) -> bool:
        """Whether all intervals of the server are done with the step."""
        return self._missing[step, server] == 0

    def interval_is_finished(self, interval: int) -> bool:
        """Whether an own interval is done with the epoch."""
        return self._left[interval - self.plan.mine.start] == 0

    @property
    def is_finished(self) -> bool:
        """Whether all own intervals are done with the epoch."""
        return self._intervals == 0

    def _done(self, step: int, interval: int) -> list[int]:
        ready = self._release(self.plan.each.get((step, interval), ()))
        group = (step, self.plan.owner[interval])
        if group in self._missing:
            self._missing[group] -= 1
            if self._missing[group] == 0:
                ready += self._release(self.plan.whole.get(group, ()))
        return ready

    def _release(self, waiting: Iterable[int]) -> list[int]:
        ready = []
        for task in waiting:
            self._unmet[task] -= 1
            if self._unmet[task] == 0:
                ready.append(task)
        self._running.update(ready)
        return ready
