"""The memory model: what a run holds, by kind, in memory and in files, and what it moves between them each epoch.

docs/memory.md says it in words. Everything here is arithmetic on sizes; :mod:`dorylus.training.limits` chooses.
"""

from collections import Counter

from dorylus.paging.mover import WRITES
from dorylus.paging.window import PAGE
from dorylus.saga import Plan
from dorylus.saga.stages import Gather, Slot
from dorylus.servers.residency import AHEAD
from dorylus.training.memory_figures import Figures, Way
from dorylus.training.memory_pass import Pass
from dorylus.training.memory_shape import FLOAT, Shape

TABLE_ENTRY = 8  # bytes that the kernel keeps for a page that was ever in memory
SETTLING = 48  # bytes of a vertex beyond those of a paged run: parts, levels, intervals, degrees


def in_files(shape: Shape, training: Plan | None, evaluation: Plan, way: Way) -> Figures:
    """What a run under a limit holds and moves: the worse of its two passes or of its start, and what all share."""
    passes = [Pass(shape, evaluation, way, backward=False)]
    if training is not None:
        passes.append(Pass(shape, training, way, backward=True))
    worst = max(passes, key=lambda each: each.figures.peak)
    made = Figures(worst.figures.resident, Counter(), passes[-1].figures.read, passes[-1].figures.written)
    start = _start(shape, evaluation, way)
    if start.total() > made.peak:
        made.resident = start
    made.resident["vertices"] = shape.vertex_bytes
    if shape.turned:
        made.resident["edges"] += 8 * shape.vertices + shape.edges * (8 if shape.weighted else 4)
    made.on_disk = _shared_files(shape, evaluation, way)
    for each in passes:
        made.on_disk |= each.figures.on_disk
    made.resident["on the way"] += made.on_disk.total() // PAGE * TABLE_ENTRY
    return made


def in_memory(shape: Shape, training: Plan | None, evaluation: Plan, way: Way, *, mapped: bool) -> Figures:
    """What a run without a limit holds: everything. ``mapped``: the graph lies in files, of which it reads all."""
    made = Pass(shape, evaluation, way, backward=False, everything=True).figures
    if training is not None:
        trained = Pass(shape, training, way, backward=True, everything=True)
        trained.figures.resident["activations"] += trained.kept_bytes(training) * way.kept
        trained.figures.resident["results"] += shape.vertices * FLOAT * sum(slot.columns for slot in evaluation.results)
        made = max(made, trained.figures, key=lambda each: each.peak)  # memory for results is kept for the next
    made.resident["vertices"] = shape.vertex_bytes + SETTLING * shape.vertices
    own, features = shape.edges * (8 if shape.weighted else 4) * mapped, shape.feature_bytes * mapped
    copies = shape.self_loops + shape.directed  # in working order, and turned round
    made.resident["edges"] += own + shape.edge_bytes * copies
    made.resident["features"] += features
    if shape.feature_item != FLOAT:  # what is gathered from, or kept for a gradient, is a copy in float32
        made.resident["features"] += shape.vertices * FLOAT * shape.features
    made.droppable = own + features * (not _gathers_features(evaluation))
    made.resident["first gather"] += sum(
        shape.vertices * FLOAT * slot.columns for slot in _outputs(evaluation) if slot.source == "static"
    )
    return made


def _outputs(plan: Plan) -> list[Slot]:
    return [stage.output for stage in plan.stages if isinstance(stage, Gather)]


def _gathers_features(plan: Plan) -> bool:
    """Whether rows of the features are read in any order, by a gather."""
    return any(slot.source == "features" for each in plan.stages if isinstance(each, Gather) for slot in each.inputs)


def _start(shape: Shape, plan: Plan, way: Way) -> Counter[str]:
    """What the gather that is made once holds while it lasts."""
    static = any(slot.source == "static" for slot in _outputs(plan))
    columns = -(-shape.features // way.static_blocks) * static
    in_hand = (way.threads + AHEAD + WRITES) * (shape.edge_bytes + shape.vertices * FLOAT * 2 * shape.features)
    return Counter({"features": shape.vertices * FLOAT * columns, "on the way": in_hand // way.intervals})


def _shared_files(shape: Shape, plan: Plan, way: Way) -> Counter[str]:
    files = Counter({"edges": shape.edge_bytes * (1 + shape.directed) * shape.self_loops})
    for slot in _outputs(plan):
        if slot.source == "static":
            files["first gather"] += shape.vertices * way.item(True) * slot.columns
    return files
