"""The ledger of a run's gradients: who has pushed and who has finished what, each exactly once."""

from dataclasses import dataclass, field

from dorylus.errors import TrainingError


@dataclass
class _Entry:
    pushed: set[tuple[int, int]] = field(default_factory=set)  # (interval, step)
    finished: set[int] = field(default_factory=set)


class Ledger:
    """Epochs in progress. Several may be open at once; they close in order, each when all its intervals finished."""

    def __init__(self, num_intervals: int) -> None:
        self.num_intervals = num_intervals
        self._open: dict[int, _Entry] = {}
        self._closed = -1

    def open_epochs(self) -> list[int]:
        """The epochs that somebody is at work on, in order."""
        return sorted(self._open)

    def enter(self, interval: int, epoch: int) -> None:
        """An interval is at work on an epoch; refused when it has finished it."""
        self._entry(interval, epoch)

    def push(self, interval: int, epoch: int, step: int) -> None:
        """An interval has pushed the gradients of a step; refused the second time."""
        pushed = self._entry(interval, epoch).pushed
        if (interval, step) in pushed:
            raise TrainingError(
                f"interval {interval} pushes the gradients of step {step} of epoch {epoch} a second time: a task's "
                "gradients count once, however often it was launched. Drop the second answer."
            )
        pushed.add((interval, step))

    def finish(self, interval: int, epoch: int) -> list[int]:
        """An interval has pushed all; gives the epochs that close by it, in order."""
        self._entry(interval, epoch).finished.add(interval)
        closed = []
        while self._open and len(self._open[first := min(self._open)].finished) == self.num_intervals:
            del self._open[first]
            self._closed = first
            closed.append(first)
        return closed

    def _entry(self, interval: int, epoch: int) -> _Entry:
        if not 0 <= interval < self.num_intervals:
            raise TrainingError(
                f"interval {interval} speaks to parameter servers of {self.num_intervals} intervals: they are "
                f"numbered from 0 over the whole cluster. Make the parameter servers with their right number."
            )
        entry = self._open.get(epoch)
        if epoch <= self._closed or (entry is not None and interval in entry.finished):
            raise TrainingError(
                f"interval {interval} speaks of epoch {epoch}, which it has finished: its weight update is its last "
                "task of an epoch, and comes once."
            )
        if entry is None:
            entry = self._open[epoch] = _Entry()
        return entry
