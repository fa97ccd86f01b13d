"""Which matrices every step of a table touches: some rows of them, or all.

When a matrix is free: as soon as the last task that reads it this epoch is done.
"""

import threading
from collections import defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple

from dorylus.pipeline import Kind
from dorylus.saga import ApplyEdge, ApplyVertex, Gather, Loss, Scatter, Slot, Stage, Steps
from dorylus.servers.graph.matrices import Matrices
from dorylus.servers.graph.pass_context import Extra, Grad, Published

EXTRAS = ("lse", "a_pos", "out_pos", "ties")
PUBLISHED = ("cotangent", "share", "out", "delta", "lse", "s_dst")


def last_readers(steps: Steps, results: Collection[Slot] = frozenset()) -> dict[Any, frozenset[int]]:
    """For every matrix that is given back in an epoch, the steps that have to be done with it first.

    ``results`` are read when the epoch is over, and stay.
    """
    found: dict[Any, frozenset[int]] = {Grad(slot): readers for slot, readers in steps.grad_readers.items()}
    goes = (each for each in steps.readers if (each.source == "computed" or each.dropout > 0) and each not in results)
    return found | {slot: steps.readers[slot] for slot in goes}


def companions(name: Any) -> list[Any]:
    """What goes with a matrix: what its gather keeps, with the rows, and what that publishes, with the cotangent."""
    if isinstance(name, Slot):
        return [Extra(name, what) for what in EXTRAS]
    return [Published(name.slot, what) for what in PUBLISHED]


class Lifetimes:
    """Counts, for every matrix, the tasks that will still read it this epoch. For exact epochs only: in others, values
    of the epoch before are read too."""

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
        """One task of this step is done."""
        for name in self._reads.get(step, ()):
            with self._lock:
                self._left[name] -= 1
                last = self._left[name] == 0
                if last:
                    self._left[name] = self._counts[name]
            if last:
                self._matrices.release([name, *companions(name)])


Names = tuple[Any, ...]
FEATURES = "features"  # the graph's own, which a scatter reads to publish them with dropout


class Access(NamedTuple):
    """The names of matrices a task reads the own rows of, writes the own rows of, and reads all rows of."""

    reads: Names = ()
    writes: Names = ()
    wholes: Names = ()

    @property
    def rows(self) -> Names:
        """Those of which it touches the own rows."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


def access_sets(steps: Steps) -> list[Access]:
    """One entry a step."""
    touches = [_touch(step.kind, stage) for step, stage in zip(steps.table.steps, steps.stages, strict=True)]
    begun = begun_by(steps)
    for slot, number in begun.items():
        touches[number] = touches[number]._replace(writes=(*touches[number].writes, Grad(slot)))
    for number, (step, stage) in enumerate(zip(steps.table.steps, steps.stages, strict=True)):
        if step.kind is Kind.GRAD_GATHER and isinstance(stage, Gather) and stage.inputs[0] in begun:
            touches[number] = touches[number]._replace(reads=(*touches[number].reads, Grad(stage.inputs[0])))
    return touches


def begun_by(steps: Steps, *, later: bool = True) -> dict[Slot, int]:
    """The slots of whose cotangent a part is there before the rest; and the dense step that gives it, the first.

    The rest comes from a gather; or, with ``later``, the whole is not taken before a later phase.
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


def _touch(kind: Kind, stage: Stage | None) -> Access:
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
    extras = tuple(Extra(stage.output, what) for what in EXTRAS)
    published = tuple(Published(stage.output, what) for what in PUBLISHED)
    grads, valued = tuple(map(Grad, stage.inputs)), stage.layer.reduce in ("max", "attention", "softmax")
    near: Names
    if kind is Kind.GATHER:
        near = () if stage.over is not None else tuple(slot for slot in stage.inputs if not slot.gathered)
        far = () if stage.over is not None else tuple(slot for slot in stage.inputs if slot.gathered)
        return Access(near, (stage.output, *extras), far)
    if kind is Kind.GRAD_SCATTER:
        near = (stage.output, *extras, *stage.inputs) if valued else ()
        return Access(near, (*published, *grads[2:]))  # of attention's inputs the third is the destination's own
    if stage.over is not None:
        return Access((stage.output, *extras), (Grad(stage.output),))
    return Access(stage.inputs if valued else (), grads[:2], published)
