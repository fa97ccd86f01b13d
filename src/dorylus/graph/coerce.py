"""User input coerced to the array types that a graph stores.

Safe conversions (a list of integers, float64 features) are silent; anything else is a GraphError. ``validate`` checks
the values.
"""

from typing import Any

import numpy as np

from dorylus.errors import GraphError
from dorylus.graph.arrays import AnyArray, BoolArray, FloatArray, IdArray, OffsetArray

MAX_VERTICES = np.iinfo(np.int32).max
MAX_CLASSES = 1 << 31
LABEL_RULE = (
    "They must be whole numbers of shape [vertices] (-1 for none), or zeros and ones of shape [vertices, classes] for "
    "a multi-label graph."
)


def as_integers(values: Any, what: str) -> AnyArray:
    """``values`` as a one-dimensional array of integers; their width is kept."""
    array = as_array(values)
    if array.size == 0 and array.ndim == 1:
        return array.astype(np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise GraphError(
            f"{what} must be a one-dimensional array of whole numbers, found {_describe(array)}. "
            f"Convert it with np.asarray({what}).ravel().astype(np.int64)."
        )
    return array


def as_offsets(values: Any, what: str = "indptr") -> OffsetArray:
    """Row offsets as int64."""
    return np.ascontiguousarray(as_integers(values, what), dtype=np.int64)


def as_ids(values: Any, what: str = "indices") -> IdArray:
    """Vertex or column numbers as int32; a number that does not fit is refused, not wrapped."""
    array = as_integers(values, what)
    if array.dtype.itemsize >= 4 and array.size and array.dtype != np.int32:
        for position in (int(array.argmax()), int(array.argmin())):
            if abs(int(array[position])) > MAX_VERTICES:
                raise GraphError(
                    f"{what}[{position}] is {array[position]}, beyond the {MAX_VERTICES:,} that fit in 32 bits. "
                    "Renumber the vertices from 0 (np.unique with return_inverse=True does it)."
                )
    return np.ascontiguousarray(array, dtype=np.int32)


def as_float32(values: Any, what: str) -> FloatArray:
    """``values`` as float32; text, objects and complex numbers are refused."""
    array = as_array(values)
    if array.dtype == np.float32:
        return array
    if array.dtype.kind not in "fiub":
        raise GraphError(f"{what} must hold numbers, found {_describe(array)}. Convert it to float32 first.")
    with np.errstate(over="ignore"):  # an overflow becomes inf, which validation names by row and column
        return array.astype(np.float32)


def as_labels(values: Any) -> AnyArray:
    """int64 [N] class numbers, or uint8 [N, C] of zeros and ones for multi-label graphs."""
    array = as_array(values)
    if not is_label_type(array.dtype, array.ndim):
        raise GraphError(f"labels are {_describe(array)}. {LABEL_RULE}")
    if array.ndim == 1:
        return np.ascontiguousarray(array, dtype=np.int64)
    if array.dtype == np.bool_:
        return np.ascontiguousarray(array).view(np.uint8)
    return _zeros_and_ones(array)


def as_array(values: Any) -> AnyArray:
    """``values`` as an array; a torch tensor may be on any device, and have a gradient."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def is_label_type(dtype: np.dtype[Any], num_dimensions: int) -> bool:
    """Whether an array of this type may hold labels."""
    return (num_dimensions == 1 and dtype.kind in "iu") or (num_dimensions == 2 and dtype.kind in "biuf")


def class_too_large(label: int) -> str:
    """The sentence for a class number that no graph has, without its subject."""
    return (
        f"is {label}: classes are numbered from 0 without gaps, and none reaches 2**31. Renumber the labels "
        "(np.unique with return_inverse=True does it)."
    )


def as_mask(values: Any, num_vertices: int, what: str) -> BoolArray:
    """A boolean mask; ``None`` selects no vertex."""
    if values is None:
        return np.zeros(num_vertices, dtype=np.bool_)
    array = as_array(values)
    if array.dtype != np.bool_ or array.shape != (num_vertices,):
        raise GraphError(
            f"{what} is {_describe(array)}. A mask is bool of shape [{num_vertices}], one entry a vertex: from vertex "
            f"numbers, make it with mask = np.zeros({num_vertices}, bool); mask[numbers] = True."
        )
    return array


def mask_from_numbers(selected: Any, num_vertices: int) -> BoolArray:
    """The mask that selects the vertices numbered ``selected``."""
    numbers = np.asarray(selected)
    if numbers.size and not np.issubdtype(numbers.dtype, np.integer):
        raise GraphError(f"a split is given as {numbers.dtype}: give the numbers of its vertices, as whole numbers.")
    if numbers.size and (numbers.min() < 0 or numbers.max() >= num_vertices):
        bad = int(numbers[(numbers < 0) | (numbers >= num_vertices)][0])
        raise GraphError(
            f"a split names vertex {bad}, but vertices are numbered 0 to {num_vertices - 1}: correct the split."
        )
    chosen = np.zeros(num_vertices, dtype=np.bool_)
    repeated = mark_selected(chosen, numbers.ravel().astype(np.int64))
    if repeated is not None:
        raise GraphError(repeated_vertex("a split", int(numbers.flat[repeated]), repeated))
    return chosen


def mark_selected(chosen: BoolArray, numbers: OffsetArray) -> int | None:
    """Mark the vertices with these numbers; returns the position of the first number that was marked before, if any."""
    repeats = chosen[numbers]
    chosen[numbers] = True
    firsts = np.unique(numbers, return_index=True)[1]
    if firsts.size < numbers.size:
        within = np.ones(numbers.size, np.bool_)
        within[firsts] = False
        repeats |= within
    return int(repeats.argmax()) if repeats.any() else None


def repeated_vertex(split: str, vertex: int, entry: int) -> str:
    """The error message for a split that lists a vertex number twice."""
    return (
        f"{split} names vertex {vertex} twice, again in entry {entry}: whole numbers are taken for numbers of "
        "vertices, each given once. Drop the repeats; or, if it is a mask with an entry a vertex, make it bool: "
        "mask.astype(bool)."
    )


def _zeros_and_ones(array: AnyArray) -> AnyArray:
    bad = (array != 0) & (array != 1)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise GraphError(
            f"labels[{row}, {column}] is {array[row, column]}: a label matrix holds zeros and ones. "
            "For one class a vertex, give whole numbers of shape [vertices] (labels.ravel())."
        )
    return np.ascontiguousarray(array, dtype=np.uint8)


def _describe(array: AnyArray) -> str:
    return f"{array.dtype} of shape {list(array.shape)}"
