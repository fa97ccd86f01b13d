"""An edge list as the CSR of a graph: bounds checked, both directions, sorted, repeats removed."""

from numbers import Integral
from typing import Any

import numpy as np

from dorylus.backends import WeightClash, native
from dorylus.errors import GraphError, given, short_repr
from dorylus.graph import validate
from dorylus.graph.arrays import AnyArray, BoolArray, FloatArray, IdArray, OffsetArray
from dorylus.graph.coerce import MAX_VERTICES, as_float32, as_integers

Csr = tuple[OffsetArray, IdArray, FloatArray | None]


def csr_from_edges(
    source: Any, destination: Any, num_vertices: int | None, *, undirected: bool, weight: Any = None
) -> Csr:
    """(indptr, indices, weight): row v lists the sources of v's in-edges, ascending, each once."""
    source = as_integers(source, "source")
    destination = as_integers(destination, "destination")
    num_vertices = _count_vertices(source, destination, num_vertices)
    validate.check_ends(source, destination, num_vertices)
    weight = None if weight is None else _weights(weight, source, destination)
    rows, columns = destination.astype(np.int32, copy=False), source.astype(np.int32, copy=False)
    if undirected:
        rows, columns = np.concatenate([rows, columns]), np.concatenate([columns, rows])
        weight = None if weight is None else np.concatenate([weight, weight])
    indptr, indices, weight = native.csr_build(rows, columns, num_vertices, num_vertices, weight)
    if weight is None:
        return native.csr_coalesce(indptr, indices)
    return _drop_repeats(indptr, indices, weight)


def _count_vertices(source: AnyArray, destination: AnyArray, given: int | None) -> int:
    if source.shape != destination.shape:
        raise GraphError(
            f"there are {source.size} sources but {destination.size} destinations. Give one of each per edge."
        )
    largest = max((int(ends.max()) for ends in (source, destination) if ends.size), default=-1)
    if given is not None and (isinstance(given, bool) or not isinstance(given, Integral) or given < 0):
        raise GraphError(
            f"num_vertices={short_repr(given)}, but num_vertices is a whole number: give one, such as {largest + 1}, "
            "or leave it out."
        )
    count = largest + 1 if given is None else int(given)
    if count > MAX_VERTICES:
        raise GraphError(
            f"the graph would have {count:,} vertices, but at most {MAX_VERTICES:,} fit. If the numbers have "
            "gaps, renumber the vertices from 0 (np.unique with return_inverse=True does it)."
        )
    return count


def _weights(values: Any, source: AnyArray, destination: AnyArray) -> FloatArray:
    weight = np.ascontiguousarray(as_float32(values, "edge_weight"))
    if weight.shape != source.shape:
        raise GraphError(
            f"edge_weight has shape {list(weight.shape)}, but there are {source.size} edges. Give one per edge."
        )
    edge = validate.first_where(weight.size, lambda b, e: ~np.isfinite(weight[b:e]))
    if edge is not None:
        raise GraphError(
            f"the weight of edge {source[edge]} -> {destination[edge]} (number {edge}) is {weight[edge]}. "
            "Weights are finite numbers: drop the edge or give it one."
        )
    return weight


def _drop_repeats(indptr: OffsetArray, indices: IdArray, weight: FloatArray) -> Csr:
    """Each edge once. Two weights for one edge are refused: adding them or keeping the first would be a guess."""
    repeat = _repeats(indptr, indices)
    clash = np.flatnonzero(repeat[1:] & (weight[1:] != weight[:-1]))
    if clash.size:
        entry = int(clash[0]) + 1
        row, column = validate.row_at(indptr, entry), int(indices[entry])
        first, second = float(weight[entry - 1]), float(weight[entry])
        raise repeated_edge_error(column, row, first, second) from WeightClash(row, column, first, second)
    kept_before = np.zeros(indices.size + 1, dtype=np.int64)
    np.cumsum(~repeat, out=kept_before[1:])
    return kept_before[indptr], indices[~repeat], weight[~repeat]


def repeated_edge_error(source: object, destination: object, first: float, second: float) -> GraphError:
    """The error for an edge with two weights."""
    return GraphError(
        f"edge {source} -> {destination} is given twice, with weights {first} and {second}. Merge repeated edges "
        f"first, or pass {given('undirected', False)} if direction matters."
    )


def _repeats(indptr: OffsetArray, indices: IdArray) -> BoolArray:
    """True for every entry equal to the one before it in its row."""
    repeat = np.zeros(indices.size, dtype=np.bool_)
    np.equal(indices[1:], indices[:-1], out=repeat[1:])
    starts = indptr[:-1]
    repeat[starts[starts < indices.size]] = False
    return repeat
