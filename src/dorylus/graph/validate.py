"""The rules of a graph, each checked in one vectorised pass that reports the first violation.

A pass takes a few million entries at a time, so that temporaries stay at a few MiB.
"""

from collections.abc import Callable

import numpy as np

from dorylus.backends import native
from dorylus.errors import GraphError, given
from dorylus.graph.arrays import AnyArray, BoolArray, FloatArray, HalfArray, IdArray, OffsetArray, drop_pages
from dorylus.graph.coerce import MAX_CLASSES, class_too_large

STEP = 1 << 22  # entries checked at a time
LARGE = 1 << 30  # from this size on an array would evict many other pages from memory


def first_where(length: int, bad: Callable[[int, int], BoolArray]) -> int | None:
    """The first position at which ``bad(begin, end)`` is true, called block by block; None if there is none."""
    for begin in range(0, length, STEP):
        hits = bad(begin, min(begin + STEP, length))
        if hits.any():
            return begin + int(hits.argmax())
    return None


def row_at(indptr: OffsetArray, position: int) -> int:
    """The row that holds entry ``position``."""
    return int(np.searchsorted(indptr, position, side="right")) - 1


def check_offsets(indptr: OffsetArray, num_entries: int, what: str = "indptr") -> None:
    """Offsets start at 0, never fall, and end at the number of entries."""
    if indptr.size == 0 or indptr[0] != 0:
        state = "is empty" if indptr.size == 0 else f"starts at {indptr[0]}"
        raise GraphError(f"{what} {state}. Row offsets start with 0 and have one entry more than there are rows.")
    row = first_where(indptr.size - 1, lambda b, e: indptr[b + 1 : e + 1] < indptr[b:e])
    if row is not None:
        raise GraphError(
            f"{what} falls from {indptr[row]} to {indptr[row + 1]} at row {row}. Row offsets never fall: "
            "build them with Graph.from_edges, or as the running sum of the row lengths."
        )
    if indptr[-1] != num_entries:
        raise GraphError(f"{what} ends at {indptr[-1]}, but there are {num_entries} entries. The two must be equal.")


def check_edges(indptr: OffsetArray, indices: IdArray) -> None:
    """Every in-edge comes from a vertex that exists."""
    num_vertices = indptr.size - 1
    cold = indices.nbytes >= LARGE
    position = first_where(indices.size, lambda b, e: _outside_of(indices[b:e], num_vertices, cold=cold))
    if position is None:
        return
    raise GraphError(
        missing_vertex(f"number {position}", int(indices[position]), row_at(indptr, position), num_vertices)
    )


def _outside_of(block: IdArray, num_vertices: int, *, cold: bool) -> BoolArray:
    """Which entries name no vertex; the pages of a large mapped array are dropped block by block."""
    if block.min() >= 0 and block.max() < num_vertices:
        if cold:
            drop_pages(block)
        return np.zeros(1, np.bool_)
    return (block < 0) | (block >= num_vertices)


def missing_vertex(position: str, source: int, destination: int, num_vertices: int) -> str:
    """The error message for an edge that names a missing vertex."""
    missing = destination if 0 <= source < num_vertices else source
    span = f"has vertices 0 to {num_vertices - 1}" if num_vertices else "has no vertices"
    cure = "Number the vertices from 0" if missing < 0 else f"Give {given('num_vertices', missing + 1)}"
    return (
        f"edge {source} -> {destination} ({position}) names vertex {missing}, but the graph {span}. "
        f"{cure}, or drop the edge."
    )


def check_ends(source: AnyArray, destination: AnyArray, num_vertices: int) -> None:
    """Both ends of every edge of an edge list exist."""
    positions = [_first_outside(ends, num_vertices) for ends in (source, destination) if _outside(ends, num_vertices)]
    if positions:
        first = min(positions)
        raise GraphError(missing_vertex(f"number {first}", int(source[first]), int(destination[first]), num_vertices))


def check_ascending(indptr: OffsetArray, indices: IdArray) -> None:
    """The sources of each vertex are in ascending order (repeats are parallel edges, and allowed)."""
    position = first_descent(indptr, indices)
    if position is not None:
        raise GraphError(
            f"the sources of vertex {row_at(indptr, position)} are not in ascending order: {indices[position - 1]} "
            f"comes before {indices[position]}. Build the graph with Graph.from_edges, which sorts them."
        )


def first_descent(indptr: OffsetArray, indices: IdArray, *, or_repeat: bool = False) -> int | None:
    """Position of the first entry below (``or_repeat``: or equal to) the one before it in the same row."""
    for begin in range(1, indices.size, STEP):
        end = min(begin + STEP, indices.size)
        before, here = indices[begin - 1 : end - 1], indices[begin:end]
        falls = begin + np.flatnonzero(here <= before if or_repeat else here < before)
        within = falls[indptr[np.searchsorted(indptr, falls)] != falls]  # a new row may start anywhere
        if within.size:
            return int(within[0])
    return None


def check_weights(indptr: OffsetArray, indices: IdArray, weight: FloatArray) -> None:
    """One finite weight per edge; negative weights are allowed."""
    if weight.shape != indices.shape:
        raise GraphError(
            f"edge_weight has shape {list(weight.shape)}, but there are {indices.size} directed edges. "
            "Give one weight for each, in the order of indices."
        )
    position = first_where(weight.size, lambda b, e: ~np.isfinite(weight[b:e]))
    if position is not None:
        raise GraphError(
            f"the weight of edge {indices[position]} -> {row_at(indptr, position)} is {weight[position]}. "
            "Weights are finite numbers: drop the edge or give it one."
        )


def check_symmetric(indptr: OffsetArray, indices: IdArray, weight: FloatArray | None) -> None:
    """An undirected graph holds both directions of every edge, with the same weight."""
    if native.csr_is_symmetric(indptr, indices, values=weight):
        return
    cure = "Pass directed=True, or build it with Graph.from_edges(..., undirected=True), which adds the reverse edges."
    raise GraphError(f"the graph is called undirected, but {_first_one_way_edge(indptr, indices, weight)}. {cure}")


def check_features(features: FloatArray | HalfArray, num_vertices: int) -> None:
    """A finite feature row for every vertex."""
    check_feature_rows(features.shape, num_vertices)
    num_columns = max(features.shape[1], 1)
    step = max(STEP // num_columns, 1)
    for begin in range(0, num_vertices, step):
        finite = np.isfinite(features[begin : begin + step])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise GraphError(bad_feature(begin + int(row), int(column), float(features[begin + row, column])))


def bad_feature(row: int, column: int, value: float) -> str:
    """The error message for a feature that is not finite."""
    return (
        f"features[{row}, {column}] is {value} (vertex {row}, column {column}). Features are finite float32 numbers: "
        "replace the value, for example with np.nan_to_num."
    )


def check_feature_rows(shape: tuple[int, ...], num_vertices: int) -> None:
    """Features have two dimensions, the first as long as there are vertices."""
    if len(shape) != 2 or shape[0] != num_vertices:
        raise GraphError(
            f"features have shape {list(shape)}, but the graph has {num_vertices} vertices. "
            f"They must have shape [{num_vertices}, columns]: one row per vertex, in vertex order."
        )


def check_labels(labels: AnyArray, num_vertices: int, num_classes: int) -> None:
    """One label (or row of labels) per vertex, each a class that exists."""
    if len(labels) != num_vertices:
        raise GraphError(
            f"there are {len(labels)} labels, but {num_vertices} vertices. Give one per vertex, -1 for no label."
        )
    if labels.ndim == 2:
        if labels.shape[1] != num_classes:
            raise GraphError(f"labels have {labels.shape[1]} columns, but num_classes={num_classes}. Leave it out.")
        return
    vertex = first_where(num_vertices, lambda b, e: (labels[b:e] < -1) | (labels[b:e] >= num_classes))
    if vertex is not None:
        raise GraphError(
            f"the label of vertex {vertex} is {labels[vertex]}, but there are {num_classes} classes, "
            "numbered from 0, and -1 stands for none. Renumber the labels, or pass a larger num_classes."
        )
    if num_classes > MAX_CLASSES:
        vertex = first_where(num_vertices, lambda b, e: labels[b:e] >= MAX_CLASSES)
        if vertex is not None:
            raise GraphError(f"the label of vertex {vertex} {class_too_large(int(labels[vertex]))}")


def check_mask(mask: BoolArray, labels: AnyArray | None, what: str) -> None:
    """A mask selects only vertices that have a label."""
    if labels is None:
        if mask.any():
            raise GraphError(f"{what} selects vertex {int(mask.argmax())}, but the graph has no labels. Give labels.")
        return
    if labels.ndim == 1:
        vertex = first_where(mask.size, lambda b, e: mask[b:e] & (labels[b:e] < 0))
        if vertex is not None:
            raise GraphError(
                f"{what} selects vertex {vertex}, whose label is -1 (none). Leave it out: {what} &= labels >= 0."
            )


def _outside(numbers: AnyArray, limit: int) -> bool:
    return bool(numbers.size) and bool(numbers.min() < 0 or numbers.max() >= limit)


def _first_outside(numbers: AnyArray, limit: int) -> int:
    position = first_where(numbers.size, lambda b, e: (numbers[b:e] < 0) | (numbers[b:e] >= limit))
    assert position is not None
    return position


def _first_one_way_edge(indptr: OffsetArray, indices: IdArray, weight: FloatArray | None) -> str:
    num_vertices = indptr.size - 1
    indptr_t, indices_t, weight_t = native.csr_transpose(indptr, indices, num_vertices, values=weight)
    row = first_where(num_vertices, lambda b, e: indptr[b + 1 : e + 1] != indptr_t[b + 1 : e + 1])
    entry = first_where(indices.size, lambda b, e: indices[b:e] != indices_t[b:e])
    rows = [row] if row is not None else []
    rows += [row_at(indptr, entry), row_at(indptr_t, entry)] if entry is not None else []
    if rows:
        return _missing_reverse(min(rows), (indptr, indices), (indptr_t, indices_t))
    assert weight is not None
    assert weight_t is not None
    entry = first_where(weight.size, lambda b, e: weight[b:e] != weight_t[b:e])
    assert entry is not None
    ends = f"{indices[entry]} -> {row_at(indptr, entry)}"
    return f"edge {ends} weighs {weight[entry]} and its reverse {weight_t[entry]}"


def _missing_reverse(row: int, into: tuple[OffsetArray, IdArray], out_of: tuple[OffsetArray, IdArray]) -> str:
    sources, destinations = (indices[indptr[row] : indptr[row + 1]] for indptr, indices in (into, out_of))
    only_in = np.setdiff1d(sources, destinations)
    if only_in.size:
        return f"edge {only_in[0]} -> {row} has no edge {row} -> {only_in[0]}"
    only_out = np.setdiff1d(destinations, sources)
    if only_out.size:
        return f"edge {row} -> {only_out[0]} has no edge {only_out[0]} -> {row}"
    return f"the edges between vertex {row} and its neighbours are not repeated equally often in both directions"
