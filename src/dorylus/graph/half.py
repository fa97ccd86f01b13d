"""Features in two bytes a number: what fits into a float16, and stored rows as the float32 that is computed with.

A float16 has 11 significant bits, and reaches to 65504; what is nearer to zero than about 6e-8 becomes zero.
"""

from typing import Any

import numpy as np

from dorylus.errors import ConfigError, GraphError, unknown_name
from dorylus.graph.arrays import AnyArray, FloatArray
from dorylus.graph.features import SparseFeatures
from dorylus.graph.validate import row_at

FEATURE_DTYPES = ("float16", "float32")
LARGEST = float(np.finfo(np.float16).max)


def feature_dtype(name: str) -> np.dtype[Any]:
    """The type that features are stored in, by its name."""
    if name not in FEATURE_DTYPES:
        raise ConfigError(unknown_name("feature_dtype", name, FEATURE_DTYPES))
    return np.dtype(name)


def widened(rows: AnyArray) -> FloatArray:
    """Rows as float32: themselves, or a copy of what is stored in two bytes."""
    return np.asarray(rows, np.float32)


def check_dense(rows: AnyArray, first: int = 0) -> None:
    """Refuse rows, numbered from ``first`` on, that hold a number too large for a float16."""
    bad = _first_too_large(rows)
    if bad is not None:
        row, column = divmod(bad, rows.shape[1])
        raise _too_large(first + row, column, rows[row, column])


def check_sparse(features: SparseFeatures) -> None:
    """Likewise for sparse features."""
    bad = _first_too_large(features.values)
    if bad is not None:
        raise _too_large(row_at(features.indptr, bad), int(features.indices[bad]), features.values[bad])


def _first_too_large(values: AnyArray) -> int | None:
    """Where the first number is that rounds to no finite float16."""
    if not values.size or (values.max() <= LARGEST and values.min() >= -LARGEST):
        return None
    with np.errstate(over="ignore"):
        bad = np.flatnonzero(np.isinf(values.astype(np.float16)))
    return int(bad[0]) if bad.size else None


def _too_large(row: int, column: int, value: float) -> GraphError:
    return GraphError(
        f"features[{row}, {column}] is {value:.7g} (vertex {row}, column {column}), but a float16 reaches to "
        f"{LARGEST:g}. Scale that column down, or store features as float32."
    )
