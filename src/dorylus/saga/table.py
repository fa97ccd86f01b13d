"""The task table of a plan: every stage forward, its gradient backward, and what each step waits for."""

from collections import defaultdict
from dataclasses import dataclass, field

from dorylus.pipeline import Kind, Need, Scope, Step, TaskTable
from dorylus.saga.lower import Plan
from dorylus.saga.reductions import GradientTask
from dorylus.saga.stages import ApplyEdge, ApplyVertex, Gather, Loss, Scatter, Slot, Stage


@dataclass(frozen=True)
class Steps:
    """A task table, and the stage of each of its steps.

    ``readers[slot]`` are the steps that read a slot's rows, ``grad_readers[slot]`` those that read its cotangent:
    when the last of them is finished, the matrix can be released.
    """

    table: TaskTable
    stages: tuple[Stage | None, ...]
    readers: dict[Slot, frozenset[int]]
    grad_readers: dict[Slot, frozenset[int]]


def steps_of(plan: Plan, *, backward: bool) -> Steps:
    """The steps of one epoch of training, or of one forward pass."""
    builder = _Builder()
    for stage in plan.stages:
        builder.forward(stage)
    if backward:
        for stage in reversed(plan.stages):
            builder.backward(stage)
        builder.weight_update()
    return builder.finish()


@dataclass
class _Builder:
    steps: list[Step] = field(default_factory=list)
    stages: list[Stage | None] = field(default_factory=list)
    writer: dict[Slot, int] = field(default_factory=dict)
    grad_needs: dict[Slot, list[Need]] = field(default_factory=lambda: defaultdict(list))
    readers: dict[Slot, set[int]] = field(default_factory=lambda: defaultdict(set))
    grad_readers: dict[Slot, set[int]] = field(default_factory=lambda: defaultdict(set))
    edge_step: dict[ApplyEdge, int] = field(default_factory=dict)
    gather_step: dict[Gather, int] = field(default_factory=dict)
    scattered: dict[Gather, int] = field(default_factory=dict)  # the ∇SC step of each gather that has one
    weight_steps: list[int] = field(default_factory=list)
    last_block: tuple[Gather, int] | None = None  # the last ∇GA, perhaps of a block of columns

    def add(self, kind: Kind, stage: Stage | None, needs: list[Need]) -> int:
        phase = self.steps[-1].phase if self.steps else 0
        if any(need.scope in (Scope.SOURCES, Scope.READERS, Scope.EVERY) for need in needs):
            phase += 1  # a step that waits for other intervals opens the next phase
        self.steps.append(Step(kind, phase, tuple(dict.fromkeys(needs))))
        self.stages.append(stage)
        return len(self.steps) - 1

    def own(self, *slots: Slot) -> list[Need]:
        return [Need(self.writer[slot], Scope.OWN) for slot in slots if slot in self.writer]

    def across(self, *slots: Slot) -> list[Need]:
        gathered = [slot for slot in slots if slot.gathered]
        return self.own(*slots) + [Need(self.writer[s], Scope.SOURCES) for s in gathered if s in self.writer]

    def read(self, step: int, *slots: Slot) -> None:
        for slot in slots:
            self.readers[slot].add(step)

    def forward(self, stage: Stage) -> None:
        if isinstance(stage, ApplyVertex):
            step = self.add(Kind.APPLY_VERTEX, stage, self.own(*stage.inputs))
            self.writer.update(dict.fromkeys(stage.outputs, step))
            self.read(step, *stage.inputs)
        elif isinstance(stage, Scatter):
            step = self.add(Kind.SCATTER, stage, self.own(*stage.slots))
            self.writer.update(dict.fromkeys(stage.slots, step))
        elif isinstance(stage, ApplyEdge):
            slots = (stage.source, stage.destination)
            step = self.edge_step[stage] = self.add(Kind.APPLY_EDGE, stage, self.across(*slots))
            self.read(step, *slots)
        elif isinstance(stage, Gather):
            self._gather(stage)
        else:
            step = self.add(Kind.LOSS, stage, self.own(*stage.inputs))
            self.read(step, *stage.inputs)
            self._contribute(step, stage)

    def _gather(self, stage: Gather) -> None:
        if stage.output.source == "static":
            return
        over = stage.over
        needs = self.across(*stage.inputs) if over is None else [Need(self.edge_step[over], Scope.OWN)]
        if stage.after is not None:  # so that no two blocks have to be in memory at once
            needs = [*needs, Need(self.gather_step[stage.after], Scope.EVERY)]
        step = self.gather_step[stage] = self.add(Kind.GATHER, stage, needs)
        self.writer[stage.output] = step
        if over is None:
            self.read(step, *stage.inputs)

    def _contribute(self, step: int, stage: ApplyVertex | Loss) -> None:
        """Note that a dense gradient step computes weight gradients and cotangents of its inputs' own rows."""
        self.weight_steps.append(step)
        for slot in stage.inputs:
            if slot.needs_grad:
                self.grad_needs[slot].append(Need(step, Scope.OWN))

    def backward(self, stage: Stage) -> None:
        if isinstance(stage, ApplyVertex):
            needs = [need for slot in stage.outputs for need in self.grad_needs[slot]]
            step = self.add(Kind.GRAD_APPLY_VERTEX, stage, needs)
            self.read(step, *stage.inputs)
            for slot in stage.outputs:
                self.grad_readers[slot].add(step)
            self._contribute(step, stage)
        elif isinstance(stage, Gather) and stage.output.needs_grad:
            self._grad_gather(stage)
        elif isinstance(stage, ApplyEdge):
            self._grad_apply_edge(stage)

    def _grad_gather(self, stage: Gather) -> None:
        if stage.over is not None:  # one cotangent per edge of the interval: nothing crosses intervals yet
            step = self.add(Kind.GRAD_GATHER, stage, list(self.grad_needs[stage.output]))
            self.edge_step[stage.over] = step
            self._read_values(step, stage, stage.spec.grad_gather)
            self.grad_readers[stage.output].add(step)
            return
        scatter = self.scattered.get(stage)
        if scatter is None:
            scatter = self._grad_scatter(stage)
        across = [Need(scatter, Scope.READERS), Need(scatter, Scope.OWN)]
        own = [need for slot in stage.inputs for need in self.grad_needs[slot]]
        if self.last_block is not None and self.last_block[0].after is stage:
            across.append(Need(self.last_block[1], Scope.EVERY))
        step = self.add(Kind.GRAD_GATHER, stage, across + own)
        self.last_block = stage, step
        self.grad_readers[stage.output].update((scatter, step))
        self._read_values(step, stage, stage.spec.grad_gather)
        for slot in stage.inputs:
            self.grad_needs[slot].append(Need(step, Scope.OWN))

    def _grad_scatter(self, stage: Gather) -> int:
        """∇SC of a gather and, right after it, of the previous blocks of columns."""
        scatter = self.scattered[stage] = self.add(Kind.GRAD_SCATTER, stage, list(self.grad_needs[stage.output]))
        self._read_values(scatter, stage, stage.spec.grad_scatter)
        if stage.after is not None:
            self._grad_scatter(stage.after)
        return scatter

    def _read_values(self, step: int, stage: Gather, task: GradientTask) -> None:
        self.read(step, *(stage.inputs[position] for position in task.reads))
        if task.reads_output:
            self.read(step, stage.output)

    def _grad_apply_edge(self, stage: ApplyEdge) -> None:
        step = self.add(Kind.GRAD_APPLY_EDGE, stage, [Need(self.edge_step[stage], Scope.OWN)])
        self.weight_steps.append(step)
        self.read(step, stage.source, stage.destination)
        slots = [slot for slot in dict.fromkeys((stage.source, stage.destination)) if slot.needs_grad]
        if not slots:
            return
        needs = [Need(step, Scope.OWN), *(need for slot in slots for need in self.grad_needs[slot])]
        # Edges of several intervals end in the same source row: added one interval after the other, so that the
        # sum does not depend on timing.
        scatter = self.add(Kind.GRAD_SCATTER, stage, [*needs, Need(len(self.steps), Scope.PREVIOUS)])
        for slot in slots:
            self.grad_needs[slot] += [Need(scatter, Scope.READERS), Need(scatter, Scope.OWN)]

    def weight_update(self) -> None:
        """The interval's part in the weight update: all its gradients are pushed; parameter servers do the rest."""
        self.add(Kind.WEIGHT_UPDATE, None, [Need(step, Scope.OWN) for step in self.weight_steps])

    def finish(self) -> Steps:
        frozen = {slot: frozenset(steps) for slot, steps in self.readers.items()}
        grads = {slot: frozenset(steps) for slot, steps in self.grad_readers.items()}
        return Steps(TaskTable(tuple(self.steps)), tuple(self.stages), frozen, grads)
