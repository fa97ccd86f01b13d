"""Vertex features: sparse matrices, which stay sparse through a model's first product, and dense float32 or float16."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dorylus.backends import native
from dorylus.errors import ConfigError, GraphError, unknown_name
from dorylus.graph import validate
from dorylus.graph.arrays import AnyArray, FloatArray, HalfArray, IdArray, OffsetArray
from dorylus.graph.coerce import as_array, as_float32, as_ids, as_integers, as_offsets
from dorylus.graph.validate import row_at

# Below this share of non-zeros the sparse product and its dropout touch far less memory than the dense ones.
# Pubmed, at 10.02 %, is the borderline data set: its sparse form has an eighth of its dense size.
SPARSE_BELOW = 0.125


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """A float32 feature matrix in CSR form: row v holds ``values`` at columns ``indices``, strictly ascending.

    Shapes: indptr int64 [N + 1], indices int32 [non-zeros], values float32 [non-zeros].
    """

    indptr: OffsetArray
    indices: IdArray
    values: FloatArray
    num_columns: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "indptr", as_offsets(self.indptr, "features.indptr"))
        object.__setattr__(self, "indices", as_ids(self.indices, "features.indices"))
        object.__setattr__(self, "values", as_float32(self.values, "features.values"))
        if self.values.shape != self.indices.shape:
            raise GraphError(
                f"sparse features have {self.indices.size} column numbers but values of shape "
                f"{list(self.values.shape)}. Give one of each per non-zero."
            )
        validate.check_offsets(self.indptr, self.indices.size, "features.indptr")

    @classmethod
    def from_dense(cls, dense: AnyArray) -> SparseFeatures:
        """The non-zeros of a dense matrix."""
        rows, columns = np.nonzero(dense)
        return cls(
            indptr=np.searchsorted(rows, np.arange(len(dense) + 1)),
            indices=columns.astype(np.int32),
            values=np.asarray(dense[rows, columns], dtype=np.float32),
            num_columns=dense.shape[1],
        )

    @classmethod
    def from_csr(cls, indptr: AnyArray, indices: AnyArray, values: AnyArray, num_columns: int) -> SparseFeatures:
        """A CSR matrix whose columns may come in any order; repeated entries are added, stored zeros dropped."""
        given = cls(as_offsets(indptr), as_ids(indices), as_float32(values, "values"), num_columns)
        given.check_columns()
        rows = np.repeat(np.arange(given.num_rows, dtype=np.int32), np.diff(given.indptr))
        keep = given.values != 0
        built = native.csr_build(rows[keep], given.indices[keep], given.num_rows, num_columns, given.values[keep])
        offsets, columns, merged = native.csr_coalesce(built[0], built[1], values=built[2])
        assert merged is not None
        return cls(offsets, columns, merged, num_columns)

    @property
    def num_rows(self) -> int:
        """How many rows the matrix has."""
        return self.indptr.size - 1

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return (self.num_rows, self.num_columns)

    @property
    def num_nonzeros(self) -> int:
        """How many entries are stored."""
        return self.indices.size

    @property
    def density(self) -> float:
        """Stored entries over all entries; 0 for an empty matrix."""
        return self.num_nonzeros / max(self.num_rows * self.num_columns, 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.indptr.nbytes + self.indices.nbytes + self.values.nbytes

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, rows: slice) -> SparseFeatures:
        """The rows of a slice with step 1; indices and values are views."""
        begin, end, step = rows.indices(self.num_rows)
        if step != 1:
            raise IndexError("sparse features are sliced with step 1; permute() takes rows in any order")
        end = max(begin, end)
        first, last = int(self.indptr[begin]), int(self.indptr[end])
        indptr = self.indptr[begin : end + 1] - first
        return SparseFeatures(indptr, self.indices[first:last], self.values[first:last], self.num_columns)

    def to_dense(self, rows: slice | AnyArray | None = None) -> FloatArray:
        """float32 [rows, columns]: all rows, a slice of them, or those numbered in an array, in that order."""
        part = self if rows is None else self[rows] if isinstance(rows, slice) else self.permute(rows)
        dense = np.zeros(part.shape, dtype=np.float32)
        dense[np.repeat(np.arange(part.num_rows), np.diff(part.indptr)), part.indices] = part.values
        return dense

    def row_sums(self) -> FloatArray:
        """The sum of each row, 0 for an empty one."""
        return row_sums(self.indptr, self.values)

    def row_normalised(self) -> SparseFeatures:
        """Each row divided by its sum; rows that sum to zero are left as they are."""
        scale = reciprocal(self.row_sums())
        return replace(self, values=self.values * np.repeat(scale, np.diff(self.indptr)))

    def permute(self, order: AnyArray) -> SparseFeatures:
        """The matrix whose row i is row ``order[i]`` of this one (rows may be left out or repeated)."""
        order = as_integers(order, "order")
        lengths = np.diff(self.indptr)[order]
        indptr = np.zeros(order.size + 1, dtype=np.int64)
        np.cumsum(lengths, out=indptr[1:])
        shift = np.repeat(self.indptr[:-1][order] - indptr[:-1], lengths)
        entries = np.arange(indptr[-1]) + shift
        return SparseFeatures(indptr, self.indices[entries], self.values[entries], self.num_columns)

    def check(self) -> None:
        """Raise GraphError when a column is outside the matrix, repeated or out of order, or a value is not finite."""
        self.check_columns()
        position = validate.first_descent(self.indptr, self.indices, or_repeat=True)
        if position is not None:
            row = validate.row_at(self.indptr, position)
            raise GraphError(
                f"row {row} of the sparse features lists column {self.indices[position - 1]} before column "
                f"{self.indices[position]}. Columns ascend without repeats: SparseFeatures.from_csr sorts and merges."
            )
        position = validate.first_where(self.num_nonzeros, lambda b, e: ~np.isfinite(self.values[b:e]))
        if position is not None:
            row, column = validate.row_at(self.indptr, position), int(self.indices[position])
            raise GraphError(validate.bad_feature(row, column, float(self.values[position])))

    def check_columns(self) -> None:
        """Raise GraphError when an entry lies outside the matrix."""
        if not self.indices.size or (self.indices.min() >= 0 and self.indices.max() < self.num_columns):
            return
        position = validate.first_where(
            self.num_nonzeros, lambda b, e: (self.indices[b:e] < 0) | (self.indices[b:e] >= self.num_columns)
        )
        assert position is not None
        raise GraphError(
            f"row {validate.row_at(self.indptr, position)} of the sparse features has an entry in column "
            f"{self.indices[position]}, but num_columns={self.num_columns}. Give the true number of columns."
        )


def as_features(values: Any, num_vertices: int) -> FloatArray | HalfArray | SparseFeatures:
    """Features as a float32 or float16 matrix with contiguous rows, or as SparseFeatures; ``None`` means no columns."""
    if values is None:
        return np.zeros((num_vertices, 0), dtype=np.float32)
    if isinstance(values, SparseFeatures):
        return values
    array: Any = as_array(values)
    if array.dtype != np.float16:
        array = as_float32(array, "features")
    contiguous_rows = array.ndim != 2 or array.shape[1] == 0 or array.strides[1] == array.itemsize
    return array if contiguous_rows else np.ascontiguousarray(array)


def row_sums(indptr: OffsetArray, values: FloatArray) -> FloatArray:
    """Sum of ``values`` over each row of a CSR, added in double precision; 0 for an empty row."""
    sums = np.zeros(indptr.size - 1, dtype=np.float32)
    filled = np.flatnonzero(np.diff(indptr))
    if filled.size:
        sums[filled] = np.add.reduceat(values, indptr[:-1][filled], dtype=np.float64)
    return sums


def reciprocal(sums: FloatArray) -> FloatArray:
    """1 / sums, and 1 where the sum is zero."""
    scale = np.ones_like(sums)
    np.divide(1.0, sums, out=scale, where=sums != 0)
    return scale


def sparse_or_dense(features: SparseFeatures) -> SparseFeatures | FloatArray:
    """The same matrix, dense unless its share of non-zeros is below SPARSE_BELOW."""
    return features if features.density < SPARSE_BELOW else features.to_dense()


FEATURE_DTYPES = ("float16", "float32")
FLOAT16_MAX = float(np.finfo(np.float16).max)


def parse_feature_dtype(name: str) -> np.dtype[Any]:
    """The dtype of stored features by its name; an unknown name is a ConfigError."""
    if name not in FEATURE_DTYPES:
        raise ConfigError(unknown_name("feature_dtype", name, FEATURE_DTYPES))
    return np.dtype(name)


def to_float32(rows: AnyArray) -> FloatArray:
    """Rows as float32: the same array, or a converted copy of float16 rows."""
    return np.asarray(rows, np.float32)


def check_float16_rows(rows: AnyArray, first: int = 0) -> None:
    """Refuse rows, numbered from ``first``, that hold a number too large for float16."""
    bad = _first_too_large(rows)
    if bad is not None:
        row, column = divmod(bad, rows.shape[1])
        raise _too_large(first + row, column, rows[row, column])


def check_float16_sparse(features: SparseFeatures) -> None:
    """Refuse sparse features that hold a number too large for float16."""
    bad = _first_too_large(features.values)
    if bad is not None:
        raise _too_large(row_at(features.indptr, bad), int(features.indices[bad]), features.values[bad])


def _first_too_large(values: AnyArray) -> int | None:
    """The flat position of the first number that rounds to no finite float16; None if there is none."""
    if not values.size or (values.max() <= FLOAT16_MAX and values.min() >= -FLOAT16_MAX):
        return None
    with np.errstate(over="ignore"):
        bad = np.flatnonzero(np.isinf(values.astype(np.float16)))
    return int(bad[0]) if bad.size else None


def _too_large(row: int, column: int, value: float) -> GraphError:
    return GraphError(
        f"features[{row}, {column}] is {value:.7g} (vertex {row}, column {column}), but a float16 reaches to "
        f"{FLOAT16_MAX:g}. Scale that column down, or store features as float32."
    )
