"""The memory model of one pass: what every phase holds in memory, and what is read from and written to files."""

from collections import Counter
from collections.abc import Hashable, Mapping

from dorylus.memory.layout import FLOAT, Figures, GraphSizes, MemoryLayout
from dorylus.paging import PAGE, WRITES
from dorylus.partition import rows_per_unit
from dorylus.pipeline import Kind
from dorylus.saga import ApplyEdge, ApplyVertex, Gather, Loss, Plan, Slot, Steps, kept_bytes, steps_of
from dorylus.servers import (
    AHEAD,
    FEATURES,
    Access,
    Extra,
    Grad,
    Published,
    access_sets,
    begun_by,
    is_lasting,
    last_readers,
)

COPIES = 5  # of a dense task's outputs at the worst moment: values, saved values, cotangents and intermediate results
ARENA = 16 << 20  # the most that an allocator keeps for a thread that runs dense tasks


class PassModel:
    """One pass over all steps: what is in memory in which phase. ``everything``: all matrices are in memory."""

    def __init__(
        self, sizes: GraphSizes, plan: Plan, layout: MemoryLayout, *, backward: bool, everything: bool = False
    ) -> None:
        steps = steps_of(plan, backward=backward)
        self._sizes, self._plan, self._layout, self._everything = sizes, plan, layout, everything
        self._rows = -(-sizes.vertices // layout.intervals)
        self._accesses = access_sets(steps)
        self._phases = [step.phase for step in steps.table.steps]
        self._gathers = {stage.output: stage for stage in plan.stages if isinstance(stage, Gather)}
        self._results = plan.results
        self._backward, self._needed = backward, layout.rows if backward else None
        self._last = last_readers(steps, plan.results)
        added_to = {name.slot for access in self._accesses for name in access.wholes if isinstance(name, Grad)}
        self._waiting = begun_by(steps).keys() - begun_by(steps, later=False).keys() - added_to  # parts, in replies
        self.figures = Figures()
        self._matrices = Counter(dict.fromkeys(self._phases, 0))
        self._held: dict[int, Counter[str]] = {phase: Counter() for phase in self._phases}
        self._count_matrices()
        self._count_work(steps)
        self._count_messages(steps)
        if not everything:
            self._count_edges(steps)
        worst = max(self._held, key=lambda phase: self._held[phase].total())
        self.figures.resident.update(self._held[worst])
        self.figures.matrices = max(self._matrices.values())

    def _count_matrices(self) -> None:
        leaving: dict[int, int] = dict.fromkeys(self._phases, 0)  # the widest rows that are written to files
        for name, at in self._accesses_by_phase().items():
            size, kind = self._size(name), "results" if name in self._results else kind_of(name)
            if self._is_paged(name):
                self._count_paged(name, size, kind, at)
                self._count_seams(name, size, at)
                self._count_moving(name, size // self._sizes.vertices, at, leaving)
            else:
                for phase in self._lifetime(name, at):
                    self._held[phase][kind] += size
                    self._matrices[phase] += size * self._is_matrix(name)
        for phase, row_bytes in leaving.items():
            self._held[phase]["on the way"] += WRITES * self._rows * row_bytes

    def _lifetime(self, name: Hashable, at: Mapping[int, list[Access]]) -> range:
        """The phases in which a matrix is in memory; for results, all of them: they stay from one pass to the next."""
        if name in self._results:
            return range(min(self._phases), max(self._phases) + 1)
        read = [self._phases[step] for step in self._last.get(name, ())]
        return range(min(at), max([*at, *read]) + 1)

    def _is_matrix(self, name: Hashable) -> bool:
        """Whether it is a matrix of a graph server, not rows in the call or reply of a dense task."""
        if isinstance(name, Grad):
            return name.slot not in self._waiting
        return not isinstance(name, Slot) or name.source != "features" or name.gathered

    def _count_seams(self, name: Hashable, size: int, at: Mapping[int, list[Access]]) -> None:
        """Count the pages in which two intervals meet: they stay in memory as long as the matrix exists."""
        unit = rows_per_unit(self._sizes.vertices, self._layout.intervals)
        if size // self._sizes.vertices * unit % PAGE == 0:
            return
        stays = is_lasting(name) or name == FEATURES
        first, last = (min(self._phases), max(self._phases)) if stays else (min(at), max(at))
        for phase in range(first, last + 1):
            if not any(name in access.wholes for access in at.get(phase, ())):
                self._held[phase]["on the way"] += min(size, PAGE * (self._layout.intervals - 1))

    def _count_moving(
        self, name: Hashable, row_bytes: int, at: Mapping[int, list[Access]], leaving: dict[int, int]
    ) -> None:
        """Count the rows of a matrix that are in use, are being read ahead, or wait to be written."""
        for phase, accesses in at.items():
            if any(name in access.wholes for access in accesses):
                continue
            stored = is_lasting(name) or name == FEATURES
            ahead = AHEAD if stored or phase != min(at) else 0
            self._held[phase]["on the way"] += (self._layout.threads + ahead) * self._rows * row_bytes
            if not stored and any(name in access.writes for access in accesses):
                leaving[phase] = max(leaving[phase], row_bytes)

    def _count_paged(self, name: Hashable, size: int, kind: str, at: Mapping[int, list[Access]]) -> None:
        is_file = is_lasting(name) or name == FEATURES
        is_read = self._sizes.features_in_files or not (is_file and kind == "features")
        for phase, accesses in at.items():
            whole = any(name in access.wholes for access in accesses)
            written = any(name in access.writes for access in accesses)
            self._held[phase][kind] += size if whole else 0
            stays = phase != max(at) or name in self._results
            self.figures.written += size if written and stays and not is_file else 0
            self.figures.read += self._in_file(name, size) if is_read and (is_file or phase != min(at)) else 0
        if self._is_copy(name) or (not is_file and (len(at) > 1 or name in self._results)):
            self.figures.on_disk[kind] += size

    def _accesses_by_phase(self) -> dict[Hashable, dict[int, list[Access]]]:
        """For every matrix, the phases in which it is accessed, and those accesses."""
        found: dict[Hashable, dict[int, list[Access]]] = {}
        written = {
            name for access in self._accesses for name in (*access.writes, *access.wholes)
        }  # or added to by edges
        for access, phase in zip(self._accesses, self._phases, strict=True):
            for name in dict.fromkeys((*access.rows, *access.wholes)):
                made = not isinstance(name, Grad) or name in written  # others pass from task to task
                if made and self._size(name) and not (self._everything and self._is_counted(name)):
                    found.setdefault(name, {}).setdefault(phase, []).append(access)
        return found

    def _is_paged(self, name: Hashable) -> bool:
        if self._everything:
            return False
        return name == FEATURES or is_lasting(name) or self._layout.spill.pages(name, self._plan)

    def _is_counted(self, name: Hashable) -> bool:
        """Whether it is counted outside the pass: once for both passes, or with what dense tasks keep."""
        if isinstance(name, Slot) and name.source != "computed":
            return name.dropout == 0 or not name.gathered
        return name == FEATURES

    def _is_copy(self, name: Hashable) -> bool:
        """Whether it is a copy of the features, in another precision or width, made once to be gathered from."""
        if not (is_lasting(name) and isinstance(name, Slot) and name.source == "features" and name.gathered):
            return False
        return (self._layout.half and not name.exact) or name.columns != self._sizes.features

    def _in_file(self, name: Hashable, size: int) -> int:
        """The bytes of a matrix in its file: the store's features may take less there than in memory."""
        features = name == FEATURES or (is_lasting(name) and isinstance(name, Slot) and name.source == "features")
        return self._sizes.feature_bytes if features and not self._is_copy(name) else size

    def _size(self, name: Hashable) -> int:
        """The bytes of a matrix; 0 where this pass does not make it."""
        if name == FEATURES:
            return self._sizes.vertices * FLOAT * self._sizes.features
        if isinstance(name, Slot) and name.source == "features" and self._plan.sparse_features:
            return 0  # sparse rows are read from the graph when they are needed
        if isinstance(name, Slot):
            narrow = (name.gathered and not name.exact) or (name.source == "static" and not self._everything)
            return self._rows_at(name.level) * name.columns * self._layout.item(narrow)
        assert isinstance(name, Grad | Extra | Published)
        if isinstance(name, Grad):
            return self._rows_at(name.slot.level) * FLOAT * name.slot.columns * name.slot.needs_grad
        gather = self._gathers[name.slot]
        declared = gather.spec.kept if isinstance(name, Extra) else gather.spec.published
        matrix = next(each for each in declared if each.name == name.what)
        if not self._backward and not matrix.evaluation:
            return 0  # it is made for gradients
        return self._rows_at(name.slot.level) * gather.columns_of(matrix) * self._layout.item(matrix.narrow)

    def _rows_at(self, level: int) -> int:
        """The number of rows that are ever written, and so in memory."""
        return self._sizes.vertices if self._needed is None else self._needed[level]

    def kept_bytes(self, plan: Plan) -> int:
        """The bytes that autograd keeps of all ApplyVertex tasks, where it keeps them."""
        stages = [stage for stage in plan.stages if isinstance(stage, ApplyVertex)]
        return sum(self._rows_at(stage.level) * kept_bytes(stage) for stage in stages)

    def copied_bytes(self, plan: Plan) -> int:
        """The bytes of copies that ApplyVertex reads instead of parts of a matrix: autograd keeps them."""
        read = [(slot, stage) for stage in plan.stages if isinstance(stage, ApplyVertex) for slot in stage.inputs]
        return sum(self._rows_at(stage.level) * FLOAT * slot.columns for slot, stage in read if self._is_copied(slot))

    def _is_copied(self, slot: Slot) -> bool:
        if slot.source == "features" and not slot.gathered:
            return not self._plan.sparse_features and (slot.dropout > 0 or self._sizes.feature_item != FLOAT)
        return self._layout.half and slot.gathered and not slot.exact

    def _count_edges(self, steps: Steps) -> None:
        in_files = self._sizes.edges_in_files or self._sizes.self_loops  # those with loops are scratch
        in_flight = (self._layout.threads + AHEAD) * self._sizes.edge_bytes // self._layout.intervals
        arrays = (1 + self._sizes.weighted) * (1 + self._sizes.directed)
        for phase in self._held:
            self._held[phase]["on the way"] += min(self._sizes.edge_bytes, PAGE * (self._layout.intervals - 1)) * arrays
        for step, stage in zip(steps.table.steps, steps.stages, strict=True):
            if isinstance(stage, Gather) and step.kind.value.endswith("GA"):
                self.figures.read += self._sizes.edge_bytes * in_files
                self._held[step.phase]["on the way"] += in_flight

    def _count_work(self, steps: Steps) -> None:
        """Count what dense tasks hold beside the rows they read, and what allocators keep for the next."""
        for step, stage in zip(steps.table.steps, steps.stages, strict=True):
            if isinstance(stage, ApplyVertex):
                read, made, rows = stage.inputs, sum(s.columns for s in stage.outputs), self._rows_at(stage.level)
            elif isinstance(stage, Loss):
                read, made, rows = stage.inputs, self._plan.layers[-1].out_columns, self._rows_at(stage.level)
            elif isinstance(stage, ApplyEdge):
                read, made, rows = (stage.source, stage.destination), sum(stage.columns), self._edges_at(stage)
            else:
                continue
            rows = -(-rows // self._layout.intervals)
            width = sum(slot.columns for slot in read if self._size(slot)) + COPIES * made
            bytes_at_work = rows * FLOAT * width
            kept = min(ARENA, ARENA // 4 + 2 * bytes_at_work)  # kept by the allocator: little where rows are narrow
            work = self._layout.threads * (bytes_at_work + kept)
            self._held[step.phase]["work"] = max(self._held[step.phase]["work"], work)

    def _count_messages(self, steps: Steps) -> None:
        """Count the messages of edges, from forward to backward, where the gradient of their gather reads them."""
        for step, stage in zip(steps.table.steps, steps.stages, strict=True):
            if not (isinstance(stage, Gather) and stage.over is not None and step.kind is Kind.GRAD_GATHER):
                continue
            if stage.spec.keeps_messages:
                size = self._edges_at(stage.over) * FLOAT * sum(stage.over.columns)
                made = min(p for p, each in zip(self._phases, steps.stages, strict=True) if each is stage.over)
                for phase in range(made, step.phase + 1):
                    self._held[phase]["activations"] += size

    def _edges_at(self, stage: ApplyEdge) -> int:
        """The number of edges that end in rows needed at its level."""
        into = self._layout.edges_into if self._backward else None
        edges = self._sizes.edges if into is None else into[stage.level]
        return edges + self._sizes.vertices * stage.layer.self_loops


def kind_of(name: Hashable) -> str:
    """The kind under which a matrix is reported."""
    if name == FEATURES or (isinstance(name, Slot) and name.source == "features"):
        return "features"
    if isinstance(name, Slot):
        return "first gather" if name.source == "static" else "activations"
    return "activations" if isinstance(name, Extra) else "gradients"
