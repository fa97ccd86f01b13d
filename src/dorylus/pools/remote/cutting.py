"""How the rows of a task are cut into parts that travel one by one."""

from collections.abc import Mapping
from itertools import pairwise
from math import prod

import numpy as np

from dorylus.errors import ConfigError
from dorylus.functions.payload import ROW_ROLES
from dorylus.functions.program import is_summed, role
from dorylus.pools.remote.arrays import Inputs
from dorylus.saga.sparse import SparseRows

HEAD_BYTES = 4096  # room for a frame's header
ENTRY_BYTES = 8  # of a sparse row: its column and its value

Part = tuple[int, int]  # the first row, and the one after the last


def even(num_rows: int, part_rows: int) -> list[Part]:
    """Parts of ``part_rows`` rows; the last may have fewer."""
    bounds = [*range(0, num_rows, part_rows), num_rows]
    return list(pairwise(bounds))


def rows_within(row_bytes: int, part_bytes: int) -> int:
    """How many rows a part of so many bytes has: at least one."""
    return max(1, part_bytes // max(1, row_bytes))


def row_bytes(inputs: Inputs, precision: str) -> int:
    """What a row weighs on its way to a function, sparse ones on average."""
    total = 0
    for name, rows in inputs.by_row.items():
        if isinstance(rows, SparseRows):
            total += 8 + ENTRY_BYTES * int(rows.indptr[-1] - rows.indptr[0]) // max(1, inputs.num_rows)
        else:
            total += dense_row_bytes(name, rows.nbytes // max(1, len(rows)), precision)
    return total


def out_row_bytes(shapes: Mapping[str, tuple[int, ...]], precision: str) -> int:
    """What a row weighs on its way back; ``shapes`` are those of the outputs."""
    by_row = {name: shape for name, shape in shapes.items() if not is_summed(name)}
    return sum(dense_row_bytes(name, 4 * prod(shape), precision) for name, shape in by_row.items())


def within(inputs: Inputs, precision: str, limit_bytes: int, whole_bytes: int, out_bytes: int) -> list[Part]:
    """Parts such that each one's inputs, and its outputs, stay within a limit.

    ``whole_bytes``: what travels with every part, the weights above all. ``out_bytes``: what a row weighs on its way
    back.
    """
    room = limit_bytes - whole_bytes - HEAD_BYTES
    most = room // max(1, out_bytes)
    cumulative = _cumulative_bytes(inputs, precision)
    heaviest = int(np.diff(cumulative).max(initial=0))
    if room < heaviest or most < 1:
        raise ConfigError(
            f"the weights of a task take {whole_bytes} bytes and one row up to {max(heaviest, out_bytes)}, but the "
            f"service takes at most {limit_bytes} with an invocation: use data_path='direct', or a narrower layer."
        )
    parts, begin = [], 0
    while begin < inputs.num_rows:
        fitting = int(np.searchsorted(cumulative, cumulative[begin] + room, side="right")) - 1
        end = min(fitting, begin + most, inputs.num_rows)
        parts.append((begin, end))
        begin = end
    return parts


def _cumulative_bytes(inputs: Inputs, precision: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """What the rows before each row weigh."""
    total = np.zeros(inputs.num_rows + 1, np.int64)
    for name, rows in inputs.by_row.items():
        if isinstance(rows, SparseRows):
            total += 8 * np.arange(inputs.num_rows + 1) + ENTRY_BYTES * (rows.indptr - rows.indptr[0])
        else:
            total += dense_row_bytes(name, rows.nbytes // max(1, len(rows)), precision) * np.arange(inputs.num_rows + 1)
    return total


def dense_row_bytes(name: str, float32_bytes: int, precision: str) -> int:
    """What a row that has so many bytes in float32 weighs as it travels."""
    if precision == "float32" or role(name) not in ROW_ROLES or float32_bytes <= 4:
        return float32_bytes
    return float32_bytes // 2 if precision == "bf16" else float32_bytes // 4 + 4
