"""The memory model: bytes of a run by kind, in memory and in files, and what an epoch reads and writes.

docs/memory.md explains it. Everything here is arithmetic on sizes; :mod:`dorylus.memory.limit` chooses a layout.
"""

from collections import Counter

from dorylus.memory.layout import FLOAT, Figures, GraphSizes, MemoryLayout
from dorylus.memory.model_pass import PassModel
from dorylus.paging import PAGE, WRITES
from dorylus.saga import Gather, Plan, Slot
from dorylus.servers import AHEAD

TABLE_ENTRY = 8  # bytes in the kernel's tables for a page that was ever in memory
LOST = 16  # what autograd keeps, divided by this, lies unused between its tensors
SETTLING = 48  # bytes of a vertex beyond those of a paged run: parts, levels, intervals, degrees


def in_files(sizes: GraphSizes, training: Plan | None, evaluation: Plan, layout: MemoryLayout) -> Figures:
    """What a run with files takes: the worst of its two passes and its start, and what they share."""
    passes = [PassModel(sizes, evaluation, layout, backward=False)]
    if training is not None:
        passes.append(PassModel(sizes, training, layout, backward=True))
    worst = max(passes, key=lambda each: each.figures.peak)
    made = Figures(worst.figures.resident, Counter(), passes[-1].figures.read, passes[-1].figures.written)
    start = _start(sizes, evaluation, layout)
    if start.total() > made.peak:
        made.resident = start
    made.resident["vertices"] = sizes.vertex_bytes
    if sizes.turned:
        made.resident["edges"] += 8 * sizes.vertices + sizes.edges * (8 if sizes.weighted else 4)
    made.on_disk = _shared_files(sizes, evaluation, layout)
    for each in passes:
        made.on_disk |= each.figures.on_disk
    made.resident["on the way"] += made.on_disk.total() // PAGE * TABLE_ENTRY
    return made


def in_memory(
    sizes: GraphSizes, training: Plan | None, evaluation: Plan, layout: MemoryLayout, *, mapped: bool
) -> Figures:
    """What a run without files takes. ``mapped``: the graph is in mapped files, all of which it reads."""
    passes = [PassModel(sizes, evaluation, layout, backward=False, everything=True).figures]
    if training is not None:
        trained = PassModel(sizes, training, layout, backward=True, everything=True)
        kept = trained.kept_bytes(training) * layout.kept
        trained.figures.resident["activations"] += kept + kept // LOST
        copied = trained.copied_bytes(training) * layout.kept
        trained.figures.resident["features"] += copied + copied // LOST
        results = sizes.vertices * FLOAT * sum(slot.columns for slot in evaluation.results)
        trained.figures.resident["results"] += results  # of the evaluation before: they stay until the next
        trained.figures.matrices += results
        passes.append(trained.figures)
    made = max(passes, key=lambda each: each.peak)
    static = sum(sizes.vertices * FLOAT * slot.columns for slot in _outputs(evaluation) if slot.source == "static")
    made.matrices = static + max(each.matrices for each in passes)
    made.resident["first gather"] += static
    made.resident["vertices"] = sizes.vertex_bytes + SETTLING * sizes.vertices
    _count_edges(made, sizes, training, evaluation, layout, mapped=mapped)
    _count_features(made, sizes, evaluation, layout, mapped=mapped)
    return made


def _count_edges(
    made: Figures, sizes: GraphSizes, training: Plan | None, evaluation: Plan, layout: MemoryLayout, *, mapped: bool
) -> None:
    """Count the graph's own edges, where every epoch reads them, and every copy in another order or with loops."""
    gathers = [stage for stage in evaluation.stages if isinstance(stage, Gather)]
    forward = {stage.layer.self_loops for stage in gathers}
    if layout.reordered or False not in forward:  # they are read once, to be copied
        copies = [(sizes.edges, loops) for loops in forward]
    else:
        copies = [(sizes.edges, loops) for loops in forward if loops]
        own = sizes.edges * sizes.edge_item * mapped
        made.resident["edges"] += own
        made.droppable += own
    back = [] if training is None else [each for each in training.stages if isinstance(each, Gather)]
    turned = {(each.layer.self_loops, _pruned(sizes, layout, each.output.level)) for each in back if _turns(each)}
    for loops, level in turned:
        if level is not None and layout.edges_into is not None:
            copies.append((layout.edges_into[level], loops))
        elif sizes.directed:
            copies.append((sizes.edges, loops))
    for edges, loops in copies:
        made.resident["edges"] += (edges + sizes.vertices * loops) * sizes.edge_item
    extra = len(copies) - sizes.self_loops * (1 + sizes.directed)  # offsets that are not among those of all vertices
    made.resident["vertices"] += max(0, extra) * 8 * sizes.vertices


def _turns(stage: Gather) -> bool:
    """Whether its gradient reads edges from their sources."""
    return stage.over is None and stage.output.needs_grad


def _pruned(sizes: GraphSizes, layout: MemoryLayout, level: int) -> int | None:
    """The level, where some rows are not needed at it."""
    return None if layout.rows is None or layout.rows[level] == sizes.vertices else level


def _count_features(made: Figures, sizes: GraphSizes, evaluation: Plan, layout: MemoryLayout, *, mapped: bool) -> None:
    """Count the graph's own features, where every epoch reads them, or their copies."""
    dense, sparse = sizes.sparse_bytes is None, sizes.sparse_bytes or 0
    if not evaluation.reads_features:  # they are gathered once, and released
        return
    if layout.reordered:
        made.resident["features"] += sizes.vertices * sizes.features * sizes.feature_item if dense else sparse
    else:
        own = sizes.feature_bytes * mapped
        made.resident["features"] += own
        made.droppable += own * (not _gathers_features(evaluation))
    if sizes.feature_item != FLOAT and dense and _gathers_features(evaluation):  # what is gathered from is float32
        made.resident["features"] += sizes.vertices * FLOAT * sizes.features


def _outputs(plan: Plan) -> list[Slot]:
    return [stage.output for stage in plan.stages if isinstance(stage, Gather)]


def _gathers_features(plan: Plan) -> bool:
    """Whether a gather reads rows of the features, in any order."""
    return any(slot.source == "features" for each in plan.stages if isinstance(each, Gather) for slot in each.inputs)


def _start(sizes: GraphSizes, plan: Plan, layout: MemoryLayout) -> Counter[str]:
    """What is in memory during the gather that is made once."""
    static = [each for each in plan.stages if isinstance(each, Gather) and each.output.source == "static"]
    blocks = [each.spec.blocks_made_once(each.output.columns, layout.static_blocks) for each in static]
    columns = max((block.stop - block.start for each in blocks for block in each), default=0)
    in_use = (layout.threads + AHEAD + WRITES) * (sizes.edge_bytes + sizes.vertices * FLOAT * 2 * sizes.features)
    return Counter({"features": sizes.vertices * FLOAT * columns, "on the way": in_use // layout.intervals})


def _shared_files(sizes: GraphSizes, plan: Plan, layout: MemoryLayout) -> Counter[str]:
    files = Counter({"edges": sizes.edge_bytes * (1 + sizes.directed) * sizes.self_loops})
    for slot in _outputs(plan):
        if slot.source == "static":
            files["first gather"] += sizes.vertices * layout.item(True) * slot.columns
    return files
