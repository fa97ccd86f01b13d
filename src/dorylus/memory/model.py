"""The memory model: what a run holds, by kind, in memory and in files, and what it moves between them each epoch.

docs/memory.md says it in words. Everything here is arithmetic on sizes; :mod:`dorylus.memory.limit` chooses.
"""

from collections import Counter

from dorylus.memory.layout import FLOAT, Figures, MemoryLayout, Shape
from dorylus.memory.model_pass import PassModel
from dorylus.paging import PAGE, WRITES
from dorylus.saga import Gather, Plan, Slot
from dorylus.servers import AHEAD

TABLE_ENTRY = 8  # bytes that the kernel keeps for a page that was ever in memory
LOST = 16  # the part of what autograd keeps that lies unused between its tensors
SETTLING = 48  # bytes of a vertex beyond those of a paged run: parts, levels, intervals, degrees


def in_files(shape: Shape, training: Plan | None, evaluation: Plan, way: MemoryLayout) -> Figures:
    """What a run under a limit holds and moves: the worse of its two passes or of its start, and what all share."""
    passes = [PassModel(shape, evaluation, way, backward=False)]
    if training is not None:
        passes.append(PassModel(shape, training, way, backward=True))
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


def in_memory(shape: Shape, training: Plan | None, evaluation: Plan, way: MemoryLayout, *, mapped: bool) -> Figures:
    """What a run without files holds: everything. ``mapped``: the graph lies in files, of which it reads all."""
    passes = [PassModel(shape, evaluation, way, backward=False, everything=True).figures]
    if training is not None:
        trained = PassModel(shape, training, way, backward=True, everything=True)
        kept = trained.kept_bytes(training) * way.kept
        trained.figures.resident["activations"] += kept + kept // LOST
        copied = trained.copied_bytes(training) * way.kept
        trained.figures.resident["features"] += copied + copied // LOST
        results = shape.vertices * FLOAT * sum(slot.columns for slot in evaluation.results)
        trained.figures.resident["results"] += results  # of the evaluation before: they stay until the next
        trained.figures.matrices += results
        passes.append(trained.figures)
    made = max(passes, key=lambda each: each.peak)
    static = sum(shape.vertices * FLOAT * slot.columns for slot in _outputs(evaluation) if slot.source == "static")
    made.matrices = static + max(each.matrices for each in passes)
    made.resident["first gather"] += static
    made.resident["vertices"] = shape.vertex_bytes + SETTLING * shape.vertices
    _count_edges(made, shape, training, evaluation, way, mapped=mapped)
    _count_features(made, shape, evaluation, way, mapped=mapped)
    return made


def _count_edges(
    made: Figures, shape: Shape, training: Plan | None, evaluation: Plan, way: MemoryLayout, *, mapped: bool
) -> None:
    """The graph's own edges, where they are read in every epoch, and every copy in another order or with loops."""
    gathers = [stage for stage in evaluation.stages if isinstance(stage, Gather)]
    forward = {stage.layer.self_loops for stage in gathers}
    if way.reordered or False not in forward:  # they are read once, to be copied
        copies = [(shape.edges, loops) for loops in forward]
    else:
        copies = [(shape.edges, loops) for loops in forward if loops]
        own = shape.edges * shape.edge_item * mapped
        made.resident["edges"] += own
        made.droppable += own
    back = [] if training is None else [each for each in training.stages if isinstance(each, Gather)]
    turned = {(each.layer.self_loops, _pruned(shape, way, each.output.level)) for each in back if _turns(each)}
    for loops, level in turned:
        if level is not None and way.edges_into is not None:
            copies.append((way.edges_into[level], loops))
        elif shape.directed:
            copies.append((shape.edges, loops))
    for edges, loops in copies:
        made.resident["edges"] += (edges + shape.vertices * loops) * shape.edge_item
    extra = len(copies) - shape.self_loops * (1 + shape.directed)  # offsets that are not among those of all vertices
    made.resident["vertices"] += max(0, extra) * 8 * shape.vertices


def _turns(stage: Gather) -> bool:
    """Whether its gradient goes over edges from their sources."""
    return stage.over is None and stage.output.needs_grad


def _pruned(shape: Shape, way: MemoryLayout, level: int) -> int | None:
    """The level, where some rows are not needed at it."""
    return None if way.rows is None or way.rows[level] == shape.vertices else level


def _count_features(made: Figures, shape: Shape, evaluation: Plan, way: MemoryLayout, *, mapped: bool) -> None:
    """The graph's own features, where they are read in every epoch, or the copies that are."""
    dense, sparse = shape.sparse_bytes is None, shape.sparse_bytes or 0
    if not evaluation.reads_features:  # they are gathered once, and forgotten
        return
    if way.reordered:
        made.resident["features"] += shape.vertices * shape.features * shape.feature_item if dense else sparse
    else:
        own = shape.feature_bytes * mapped
        made.resident["features"] += own
        made.droppable += own * (not _gathers_features(evaluation))
    if shape.feature_item != FLOAT and dense and _gathers_features(evaluation):  # what is gathered from is float32
        made.resident["features"] += shape.vertices * FLOAT * shape.features


def _outputs(plan: Plan) -> list[Slot]:
    return [stage.output for stage in plan.stages if isinstance(stage, Gather)]


def _gathers_features(plan: Plan) -> bool:
    """Whether rows of the features are read in any order, by a gather."""
    return any(slot.source == "features" for each in plan.stages if isinstance(each, Gather) for slot in each.inputs)


def _start(shape: Shape, plan: Plan, way: MemoryLayout) -> Counter[str]:
    """What the gather that is made once holds while it lasts."""
    static = any(slot.source == "static" for slot in _outputs(plan))
    columns = -(-shape.features // way.static_blocks) * static
    in_hand = (way.threads + AHEAD + WRITES) * (shape.edge_bytes + shape.vertices * FLOAT * 2 * shape.features)
    return Counter({"features": shape.vertices * FLOAT * columns, "on the way": in_hand // way.intervals})


def _shared_files(shape: Shape, plan: Plan, way: MemoryLayout) -> Counter[str]:
    files = Counter({"edges": shape.edge_bytes * (1 + shape.directed) * shape.self_loops})
    for slot in _outputs(plan):
        if slot.source == "static":
            files["first gather"] += shape.vertices * way.item(True) * slot.columns
    return files
