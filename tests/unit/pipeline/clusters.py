"""Cases: a cluster, a table, a schedule, a driver's script and an order of events, all chosen by the test.

The bound and exactness are defined here a second time, in the simplest form: properties are checked against this.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

from hypothesis import strategies as st
from task_tables import any_tables, program_table, program_tables

from dorylus.pipeline import Permit, Reads, Schedule, Scope, Synchronise, TaskTable, bounded, no_pipe, pipe

Cell = tuple[int, int]  # (step, interval)


@dataclass(frozen=True)
class Case:
    """One run to be simulated. ``staleness`` is None where every epoch is exact."""

    table: TaskTable
    sources: tuple[frozenset[int], ...]
    bounds: tuple[int, ...]
    staleness: int | None = None
    piped: bool = True
    first_epoch: int = 0
    permits: tuple[int, ...] = (0,)
    drains: frozenset[int] = frozenset()  # the permits whose epochs are all finished before the next permit is given
    synchronise: int | None = None
    slow: frozenset[int] = frozenset()  # intervals
    slow_servers: frozenset[int] = frozenset()  # whose messages take long
    patience: float = 0.0  # how often something slow happens before something else
    newest: float = 0.0  # how often the newest message or task is processed first
    fifo: bool = False
    sync_update: bool = True
    seed: int = 0

    @property
    def num_servers(self) -> int:
        return len(self.bounds) - 1

    @property
    def num_intervals(self) -> int:
        return self.bounds[-1]

    @property
    def epochs(self) -> range:
        return range(self.first_epoch, self.permits[-1] + 1)

    @cached_property
    def schedule(self) -> Schedule:
        if self.staleness is not None:
            return bounded(self.staleness)(self.table)
        return pipe(self.table) if self.piped else no_pipe(self.table)

    @cached_property
    def all_reads(self) -> Reads:
        return Reads.of(self.sources)

    def intervals_of(self, server: int) -> range:
        return range(self.bounds[server], self.bounds[server + 1])

    def reads(self, server: int) -> Reads:
        mine, every = self.intervals_of(server), self.all_reads
        return Reads(mine, every.sources[mine.start : mine.stop], every.readers[mine.start : mine.stop])

    @cached_property
    def owner(self) -> list[int]:
        return [k for k, (first, end) in enumerate(pairwise(self.bounds)) for _ in range(first, end)]

    def is_exact(self, epoch: int) -> bool:
        if self.staleness is None or epoch == self.first_epoch:
            return True
        return self.synchronise is not None and epoch >= self.synchronise

    def bound(self, epoch: int) -> int:
        """The epoch that every interval must have finished before any may start this one."""
        relaxed = epoch > self.first_epoch and not self.is_exact(epoch) and not self.is_exact(epoch - 1)
        return epoch - 1 - (self.staleness or 0) if relaxed else epoch - 1

    def read_cells(self, step: int, interval: int) -> list[Cell]:
        """The scattered values that a task reads: those of its sources (or readers) that its needs speak of."""
        reads = {Scope.SOURCES: self.all_reads.sources, Scope.READERS: self.all_reads.readers}
        needs = [need for need in self.table.steps[step].needs if need.scope in reads]
        return [(need.step, other) for need in needs for other in sorted(reads[need.scope][interval])]

    def script(self) -> list[list[Permit | Synchronise]]:
        """What the driver sends, in parts: before the next part, all that was permitted is finished."""
        parts: list[list[Permit | Synchronise]] = [[]]
        sent = False
        for permit in self.permits:
            if self.synchronise is not None and permit >= self.synchronise and not sent:
                parts[-1].append(Synchronise(self.synchronise))
                sent = True
            parts[-1].append(Permit(permit))
            if permit in self.drains:
                parts.append([])
        return parts


@st.composite
def relations(draw: st.DrawFn, count: int) -> tuple[frozenset[int], ...]:
    """Any reads at all, directed: none, sparse, complete, with isolated intervals among them."""
    complete = (1 << count) - 1
    pick = {
        "any": st.integers(0, complete),
        "sparse": st.sampled_from([0, *(1 << i for i in range(count))]),
        "dense": st.just(complete),
        "mixed": st.sampled_from([0, complete]),
    }[draw(st.sampled_from(["any", "sparse", "dense", "mixed"]))]
    masks = draw(st.lists(pick, min_size=count, max_size=count))
    return tuple(frozenset(i for i in range(count) if mask >> i & 1) for mask in masks)


@st.composite
def cases(
    draw: st.DrawFn,
    tables: st.SearchStrategy[TaskTable] = st.one_of(program_tables, any_tables()),  # noqa: B008
    staleness: st.SearchStrategy[int | None] = st.sampled_from([0, 1, 2, None]),  # noqa: B008
) -> Case:
    """A run of a few epochs on a small cluster, with stragglers, drain points and a switch to exact epochs."""
    # Drawn from short lists, not ranges: what goes wrong goes wrong on several servers, after several epochs.
    sizes = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=draw(st.sampled_from([1, 2, 2, 3])), max_size=3))
    bounds = (0, *accumulate(sizes))
    first, count = draw(st.sampled_from([0, 0, 3])), draw(st.sampled_from([1, 3, 4, 5, 6]))
    early = draw(st.frozensets(st.sampled_from(range(first, first + count)), max_size=2))
    permits = (*sorted(early - {first + count - 1}), first + count - 1)
    return Case(
        table=draw(tables),
        sources=draw(relations(bounds[-1])),
        bounds=bounds,
        staleness=draw(staleness),
        piped=draw(st.booleans()),
        first_epoch=first,
        permits=permits,
        drains=frozenset(permit for permit in permits[:-1] if draw(st.booleans())),
        synchronise=draw(st.none() | st.sampled_from(range(first + 1, first + count + 1))),
        slow=draw(st.frozensets(st.sampled_from(range(bounds[-1])), max_size=2)),
        slow_servers=draw(st.frozensets(st.sampled_from(range(len(sizes))), max_size=1)),
        patience=draw(st.sampled_from([0.0, 0.02, 0.3])),
        newest=draw(st.sampled_from([0.0, 0.3, 0.9])),
        fifo=draw(st.booleans()),
        sync_update=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


def as_pipe(case: Case) -> Case:
    """The same run with every epoch exact."""
    return replace(case, staleness=None, piped=True)


# Few draws are like these two, and some mistakes show in such runs only: they are always tried.
_SMALL = program_table(["gather first"])
LATE_ROWS = Case(
    _SMALL, (frozenset(), frozenset({2}), frozenset()), (0, 2, 3), staleness=0, piped=False, permits=(2,),
    slow_servers=frozenset({0}), sync_update=False,
)  # fmt: skip
EXACT_AFTER_RELAXED = Case(
    _SMALL, (frozenset({0, 1}), frozenset({0, 1})), (0, 1, 2), staleness=1, piped=False, permits=(0, 2),
    synchronise=2, sync_update=False,
)  # fmt: skip
