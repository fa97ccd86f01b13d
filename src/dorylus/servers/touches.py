"""Which matrices every step of a table touches: some rows of them, or all."""

from typing import Any, NamedTuple

from dorylus.pipeline import Kind
from dorylus.saga.stages import ApplyEdge, ApplyVertex, Gather, Loss, Scatter, Slot, Stage
from dorylus.saga.table import Steps
from dorylus.servers.bench import Extra, Grad, Published
from dorylus.servers.lifetimes import EXTRAS, PUBLISHED

Names = tuple[Any, ...]
FEATURES = "features"  # the graph's own, which a scatter reads to publish them with dropout


class Touch(NamedTuple):
    """The names of matrices a task reads the own rows of, writes the own rows of, and reads all rows of."""

    reads: Names = ()
    writes: Names = ()
    wholes: Names = ()

    @property
    def rows(self) -> Names:
        """Those of which it touches the own rows."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


def touches_of(steps: Steps) -> list[Touch]:
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


def _touch(kind: Kind, stage: Stage | None) -> Touch:
    if isinstance(stage, ApplyVertex):
        return _of_apply_vertex(kind, stage)
    if isinstance(stage, Loss):
        return Touch(reads=stage.inputs)
    if isinstance(stage, Scatter):
        return Touch(reads=(FEATURES,) if stage.slots[0].source == "features" else (), writes=stage.slots)
    if isinstance(stage, ApplyEdge):
        ends = (stage.source, stage.destination)
        return Touch(wholes=ends if kind is not Kind.GRAD_SCATTER else tuple(map(Grad, ends)))
    return Touch() if stage is None else _of_gather(kind, stage)


def _of_apply_vertex(kind: Kind, stage: ApplyVertex) -> Touch:
    if kind is Kind.APPLY_VERTEX:
        return Touch(stage.inputs, tuple(slot for slot in stage.outputs if not slot.gathered))
    return Touch((*stage.inputs, *map(Grad, stage.outputs)))


def _of_gather(kind: Kind, stage: Gather) -> Touch:
    extras = tuple(Extra(stage.output, what) for what in EXTRAS)
    published = tuple(Published(stage.output, what) for what in PUBLISHED)
    grads, valued = tuple(map(Grad, stage.inputs)), stage.layer.reduce in ("max", "attention", "softmax")
    near: Names
    if kind is Kind.GATHER:
        near = () if stage.over is not None else tuple(slot for slot in stage.inputs if not slot.gathered)
        far = () if stage.over is not None else tuple(slot for slot in stage.inputs if slot.gathered)
        return Touch(near, (stage.output, *extras), far)
    if kind is Kind.GRAD_SCATTER:
        near = (stage.output, *extras, *stage.inputs) if valued else ()
        return Touch(near, (*published, *grads[2:]))  # of attention's inputs the third is the destination's own
    if stage.over is not None:
        return Touch((stage.output, *extras), (Grad(stage.output),))
    return Touch(stage.inputs if valued else (), grads[:2], published)
