"""Access sets and lifetimes: which matrices every step of a task table reads and writes, and when each is free.

Both derive from the stages and from what each gather declares (:mod:`dorylus.saga.reductions`).
"""

import threading
from collections import defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple

from dorylus.pipeline import Kind
from dorylus.saga import ApplyEdge, ApplyVertex, Gather, Loss, Scatter, Slot, Stage, Steps
from dorylus.servers.graph.matrices import Matrices
from dorylus.servers.graph.pass_context import Extra, Grad, Published

FEATURES = "features"  # the graph's features, which a scatter reads to publish them with dropout
Names = tuple[Any, ...]


def kept_names(stage: Gather) -> tuple[Extra, ...]:
    """The names of the matrices that a gather keeps for its gradient."""
    return tuple(Extra(stage.output, matrix.name) for matrix in stage.spec.kept)


def published_names(stage: Gather) -> tuple[Published, ...]:
    """The names of the matrices that its ∇SC fills for ∇GA."""
    return tuple(Published(stage.output, matrix.name) for matrix in stage.spec.published)


def last_readers(steps: Steps, results: Collection[Slot] = frozenset()) -> dict[Any, frozenset[int]]:
    """For every matrix that is released in an epoch, the steps that must be finished first.

    ``results`` are read when the epoch is over, and stay.
    """
    readers: dict[Any, frozenset[int]] = {Grad(slot): found for slot, found in steps.grad_readers.items()}
    for slot in steps.readers:
        if (slot.source == "computed" or slot.dropout > 0) and slot not in results:
            readers[slot] = steps.readers[slot]
    of_stage: dict[Gather, set[int]] = defaultdict(set)
    for number, stage in enumerate(steps.stages):
        if isinstance(stage, Gather):
            of_stage[stage].add(number)
    for stage, numbers in of_stage.items():
        at_destination = (number for number in numbers if not _at_sources(steps, number))
        readers |= dict.fromkeys(kept_names(stage), frozenset(at_destination))
        readers |= {name: steps.grad_readers.get(stage.output, frozenset()) for name in published_names(stage)}
    return {name: found for name, found in readers.items() if found}


def _at_sources(steps: Steps, number: int) -> bool:
    """Whether a step of a gather is ∇GA over rows: it reads what is published, and nothing that is kept."""
    stage = steps.stages[number]
    return isinstance(stage, Gather) and stage.over is None and steps.table.steps[number].kind is Kind.GRAD_GATHER


class Lifetimes:
    """Counts, for every matrix, the tasks that will still read it this epoch.

    For exact epochs only: in others, values of the epoch before are read too.
    """

    def __init__(
        self, steps: Steps, num_intervals: int, matrices: Matrices, results: Collection[Slot] = frozenset()
    ) -> None:
        self._matrices = matrices
        self._lock = threading.Lock()
        self._counts: dict[Any, int] = {}
        self._reads: dict[int, list[Any]] = defaultdict(list)
        for name, readers in last_readers(steps, results).items():
            self._counts[name] = len(readers) * num_intervals
            for step in readers:
                self._reads[step].append(name)
        self._left = dict(self._counts)

    def finished(self, step: int) -> None:
        """Count a finished task of this step; matrices that it read last are released."""
        for name in self._reads.get(step, ()):
            with self._lock:
                self._left[name] -= 1
                last = self._left[name] == 0
                if last:
                    self._left[name] = self._counts[name]
            if last:
                self._matrices.release([name])


class Access(NamedTuple):
    """The names of the matrices of which a task reads its own rows, writes its own rows, or reads all rows."""

    reads: Names = ()
    writes: Names = ()
    wholes: Names = ()

    @property
    def rows(self) -> Names:
        """Those of which it reads or writes its own rows."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


def access_sets(steps: Steps) -> list[Access]:
    """What each step accesses, by the step's number."""
    found = [_access(step.kind, stage) for step, stage in zip(steps.table.steps, steps.stages, strict=True)]
    begun = begun_by(steps)
    for slot, number in begun.items():
        found[number] = found[number]._replace(writes=(*found[number].writes, Grad(slot)))
    for number, (step, stage) in enumerate(zip(steps.table.steps, steps.stages, strict=True)):
        if step.kind is Kind.GRAD_GATHER and isinstance(stage, Gather) and stage.inputs[0] in begun:
            found[number] = found[number]._replace(reads=(*found[number].reads, Grad(stage.inputs[0])))
    return found


def begun_by(steps: Steps, *, later: bool = True) -> dict[Slot, int]:
    """The slots whose cotangent a dense step begins and a later step completes; {slot: the first such dense step}.

    A gather completes it; or, with ``later``, the whole is not read before a later phase.
    """
    first: dict[Slot, int] = {}
    found: dict[Slot, int] = {}
    for number, (step, stage) in enumerate(zip(steps.table.steps, steps.stages, strict=True)):
        if isinstance(stage, Gather) and step.kind is Kind.GRAD_GATHER and stage.over is None:
            found.update((slot, first[slot]) for slot in stage.inputs[:1] if slot in first and slot.needs_grad)
        elif isinstance(stage, ApplyVertex | Loss) and step.kind is not Kind.APPLY_VERTEX:
            for slot in stage.outputs if later and isinstance(stage, ApplyVertex) else ():
                if slot in first and slot.needs_grad and steps.table.steps[first[slot]].phase < step.phase:
                    found.setdefault(slot, first[slot])
            for slot in stage.inputs:
                first.setdefault(slot, number)
    return found


def _access(kind: Kind, stage: Stage | None) -> Access:
    if isinstance(stage, ApplyVertex):
        return _of_apply_vertex(kind, stage)
    if isinstance(stage, Loss):
        return Access(reads=stage.inputs)
    if isinstance(stage, Scatter):
        return Access(reads=(FEATURES,) if stage.slots[0].source == "features" else (), writes=stage.slots)
    if isinstance(stage, ApplyEdge):
        ends = (stage.source, stage.destination)
        return Access(wholes=ends if kind is not Kind.GRAD_SCATTER else tuple(map(Grad, ends)))
    return Access() if stage is None else _of_gather(kind, stage)


def _of_apply_vertex(kind: Kind, stage: ApplyVertex) -> Access:
    if kind is Kind.APPLY_VERTEX:
        return Access(stage.inputs, tuple(slot for slot in stage.outputs if not slot.gathered))
    return Access((*stage.inputs, *map(Grad, stage.outputs)))


def _of_gather(kind: Kind, stage: Gather) -> Access:
    spec, kept, published = stage.spec, kept_names(stage), published_names(stage)
    if kind is Kind.GATHER:
        inputs = stage.inputs if stage.over is None else ()
        own, far = (tuple(slot for slot in inputs if slot.gathered is gathered) for gathered in (False, True))
        return Access(own, (stage.output, *kept), far)
    task = spec.grad_scatter if kind is Kind.GRAD_SCATTER else spec.grad_gather
    reads: Names = (stage.output,) * task.reads_output + tuple(stage.inputs[position] for position in task.reads)
    writes: Names = tuple(Grad(stage.inputs[position]) for position in task.writes)
    if kind is Kind.GRAD_SCATTER:
        return Access((*reads, *kept), (*published, *writes))
    if stage.over is not None:
        return Access((*reads, *kept), (Grad(stage.output),))
    return Access(reads, writes, published)
