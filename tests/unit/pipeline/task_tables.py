"""Random task tables, and a world that runs a scheduler and finishes tasks in an order of the test's choosing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from dorylus.pipeline import (
    Action,
    EpochFinished,
    Finished,
    Kind,
    Need,
    Permit,
    Reads,
    Scheduler,
    Scope,
    Start,
    Step,
    Task,
    TaskTable,
)

PARTIAL = (Scope.OWN, Scope.SOURCES, Scope.READERS, Scope.EVERY)
MIDDLE_KINDS = [kind for kind in Kind if kind is not Kind.WEIGHT_UPDATE]


@st.composite
def relations(draw: st.DrawFn, max_intervals: int = 5) -> Reads:
    """Any reads at all: an interval may read from nobody, itself, or everybody."""
    count = draw(st.integers(1, max_intervals))
    some = st.frozensets(st.integers(0, count - 1), max_size=count)
    return Reads.of(draw(st.lists(some, min_size=count, max_size=count)))


@st.composite
def tables(draw: st.DrawFn, max_steps: int = 6) -> TaskTable:
    """Steps with any needs that look back, and a weight update that waits for every one of them."""
    steps: list[Step] = []
    for index in range(draw(st.integers(1, max_steps))):
        earlier = st.builds(Need, st.integers(0, index - 1), st.sampled_from(PARTIAL)) if index else st.nothing()
        needs = draw(st.lists(earlier, max_size=3, unique=True)) if index else []
        if draw(st.booleans()):
            needs.append(Need(index, Scope.PREVIOUS))
        steps.append(Step(draw(st.sampled_from(MIDDLE_KINDS)), index, tuple(needs)))
    update = tuple(Need(index, Scope.EVERY) for index in range(len(steps)))
    return TaskTable((*steps, Step(Kind.WEIGHT_UPDATE, len(steps), update, once=True)))


Cell = tuple[int, int]  # (step, interval)


def cells_of(table: TaskTable, reads: Reads) -> set[Cell]:
    """Every (step, interval) of one epoch."""
    return {(s, i) for s, step in enumerate(table.steps) for i in range(1 if step.once else reads.num_intervals)}


def awaited(table: TaskTable, reads: Reads, cell: Cell) -> set[Cell]:
    """What a task waits for, read off the table's definition."""
    step, interval = cell
    found: set[Cell] = set()
    for need in table.steps[step].needs:
        everyone = [i for s, i in cells_of(table, reads) if s == need.step]
        chosen = {
            Scope.OWN: [interval],
            Scope.SOURCES: sorted(reads.sources[interval]),
            Scope.READERS: sorted(reads.readers[interval]),
            Scope.EVERY: everyone,
            Scope.PREVIOUS: [interval - 1] if interval else [],
        }[need.scope]
        found |= {(need.step, i) for i in chosen}
    return found


@dataclass
class World:
    """Runs a scheduler. ``history`` has every start and finish, in order, as ("start" | "finish", task)."""

    scheduler: Scheduler
    running: list[Task] = field(default_factory=list)
    history: list[tuple[str, Task]] = field(default_factory=list)
    epochs_over: list[int] = field(default_factory=list)

    def permit(self, epoch: int) -> list[Action]:
        return self._carry_out(self.scheduler.handle(Permit(epoch)))

    def finish(self, task: Task) -> list[Action]:
        self.running.remove(task)
        self.history.append(("finish", task))
        return self._carry_out(self.scheduler.handle(Finished(task)))

    def run(self, choose: Callable[[Sequence[Task]], Task]) -> list[list[Action]]:
        """Finish running tasks, one after the other, until none is left."""
        actions = []
        while self.running:
            actions.append(self.finish(choose(self.running)))
        return actions

    def _carry_out(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if isinstance(action, EpochFinished):
                self.epochs_over.append(action.epoch)
            else:
                assert isinstance(action, Start)
                self.running.append(action.task)
                self.history.append(("start", action.task))
        return actions

    def started(self) -> list[Task]:
        return [task for what, task in self.history if what == "start"]

    def finished_before_start_of(self, task: Task) -> set[Task]:
        """The tasks that were finished when this one was started."""
        at = self.history.index(("start", task))
        return {other for what, other in self.history[:at] if what == "finish"}
