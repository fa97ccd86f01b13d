"""The back ends in host memory: matrices are NumPy arrays, bfloat16 is held as uint16, nothing is copied.

They differ in the module that holds their kernels, whose functions have the same names and signatures.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dorylus.backends import native, reference
from dorylus.backends.backend import AttentionSums, Block, HostArray, Index, NumberFormat, PlacedCsr
from dorylus.backends.native.dropout import Dropout

if TYPE_CHECKING:
    from torch import Tensor

_DTYPES: dict[NumberFormat, np.dtype[Any]] = {
    NumberFormat.FLOAT32: np.dtype(np.float32),
    NumberFormat.BF16: np.dtype(np.uint16),
}
Array: TypeAlias = Any
"""A matrix of these back ends: a NumPy array."""

_BF16 = _DTYPES[NumberFormat.BF16]
_CACHE_LINE = 64


class HostBackend:
    """A :class:`~dorylus.backends.backend.Backend` over the functions of a module."""

    kernels: ModuleType

    def dtype(self, number_format: NumberFormat) -> np.dtype[Any]:
        """Return the type that numbers of a format have."""
        return _DTYPES[number_format]

    def number_format(self, matrix: Array) -> NumberFormat:
        """Return the format of a matrix's numbers."""
        return NumberFormat.BF16 if matrix.dtype == _BF16 else NumberFormat.FLOAT32

    def allocate(
        self, rows: int, columns: int, number_format: NumberFormat = NumberFormat.FLOAT32, *, zero: bool = False
    ) -> HostArray:
        """Return a new matrix."""
        make = np.zeros if zero else np.empty
        return make((rows, columns), _DTYPES[number_format])

    def allocate_block(self, num_bytes: int) -> HostArray:
        """Return raw memory, aligned to cache lines."""
        raw = np.empty(num_bytes + _CACHE_LINE, np.uint8)
        start = -raw.ctypes.data % _CACHE_LINE
        return raw[start : start + num_bytes]

    def matrix_over(self, block: Block, rows: int, columns: int, number_format: NumberFormat) -> HostArray:
        """Return the beginning of a block as a matrix."""
        return np.ndarray((rows, columns), _DTYPES[number_format], buffer=block)

    def from_host(self, array: HostArray) -> HostArray:
        """Return the same memory, not marked read-only: torch accepts no other, and only features are read-only."""
        return array if array.flags.writeable else np.asarray(_WritableAlias(array))

    def to_host(self, matrix: Array) -> Array:
        """Return the matrix."""
        return matrix

    def from_torch(self, tensor: Tensor) -> HostArray:
        """Return the tensor's memory as a matrix."""
        return tensor.contiguous().numpy()

    def to_torch(self, matrix: Array) -> Tensor:
        """Return the matrix as a tensor."""
        import torch  # here: graphs are built without it

        return torch.from_numpy(matrix)

    def place(self, index: HostArray) -> HostArray:
        """Return the array."""
        return index

    def place_csr(
        self,
        indptr: HostArray,
        indices: HostArray,
        values: HostArray | None = None,
        row_scale: HostArray | None = None,
        col_scale: HostArray | None = None,
    ) -> PlacedCsr:
        """Return the arrays."""
        return PlacedCsr(indptr, indices, values, row_scale, col_scale)

    def synchronise(self) -> None:
        """Do nothing: every call is done when it returns."""

    def store(self, source: Array, target: Array) -> None:
        """Write a matrix over another, in the other's format."""
        if source.dtype == target.dtype:
            target[:] = source
        elif target.dtype == _BF16:
            self.kernels.to_bf16(source, target, 0, len(target))
        else:
            self.kernels.from_bf16(source, target, 0, len(target))

    def widened(self, matrix: Array) -> Array:
        """Return the numbers in float32."""
        if matrix.dtype != _BF16:
            return matrix
        wide = np.empty(matrix.shape, np.float32)
        self.kernels.from_bf16(matrix, wide, 0, len(matrix))
        return wide

    def copy(self, matrix: Array) -> Array:
        """Return a copy."""
        return matrix.copy()

    def clear(self, matrix: Array) -> None:
        """Write zeros."""
        matrix[:] = 0

    def add(self, source: Array, target: Array) -> None:
        """Add a matrix to another."""
        target += source

    def divide(self, dividend: Array, divisor: Array, out: Array) -> None:
        """Write the elementwise quotient."""
        np.divide(dividend, divisor, out=out)

    def take_rows(self, matrix: Array, index: Index, number_format: NumberFormat = NumberFormat.FLOAT32) -> HostArray:
        """Return a new matrix whose row k is row ``index[k]``."""
        if number_format is NumberFormat.BF16 and matrix.dtype == _BF16:
            rows: HostArray = matrix[index]
            return rows
        rows = np.empty((len(index), matrix.shape[1]), np.float32)
        self.kernels.gather_rows(matrix, index, rows)
        if number_format is NumberFormat.FLOAT32:
            return rows
        narrow = np.empty(rows.shape, _BF16)
        self.kernels.to_bf16(rows, narrow, 0, len(rows))
        return narrow

    def scatter_add(self, source: Array, index: Index, target: Array) -> None:
        """Add row k of the source to row ``index[k]`` of the target."""
        self.kernels.scatter_add_rows(source, index, target)

    def clear_rows(self, matrix: Array, index: Index) -> None:
        """Write zeros into these rows."""
        matrix[index] = 0

    def gather(self, edges: PlacedCsr, x: Array, out: Array, begin: int, end: int, *, accumulate: bool = False) -> None:
        """Write the weighted sum of neighbours."""
        self.kernels.spmm(
            edges.indptr, edges.indices, x, out, begin, end,
            values=edges.values, row_scale=edges.row_scale, col_scale=edges.col_scale, accumulate=accumulate,
        )  # fmt: skip

    def gather_max(self, edges: PlacedCsr, x: Array, out: Array, ties: Array, begin: int, end: int) -> None:
        """Write the maximum of neighbours."""
        self.kernels.spmm_max(edges.indptr, edges.indices, x, out, ties, begin, end)

    def gather_max_grad(
        self,
        transpose: PlacedCsr,
        x: Array,
        out: Array,
        share: Array,
        dx: Array,
        begin: int,
        end: int,
        *,
        accumulate: bool = False,
    ) -> None:
        """Write the gradient of the maximum."""
        edges = transpose
        self.kernels.spmm_max_grad(edges.indptr, edges.indices, x, out, share, dx, begin, end, accumulate=accumulate)

    def gather_outer(self, edges: PlacedCsr, dz: Array, dw: Array) -> None:
        """Add the weight gradient of a product with sparse rows."""
        self.kernels.spmm_outer(edges.indptr, edges.indices, edges.values, dz, dw, 0, len(dz))

    def attention(
        self,
        edges: PlacedCsr,
        z: Array,
        s_src: Array,
        s_dst: Array,
        out: Array,
        begin: int,
        end: int,
        *,
        heads: int,
        slope: float,
        kept: AttentionSums | None = None,
        drop: Dropout | None = None,
        ids: Index | None = None,
    ) -> None:
        """Write the sum of neighbours weighted by attention."""
        sums = {} if kept is None else {"lse": kept.lse, "out_pos": kept.out_pos, "a_pos": kept.a_pos}
        self.kernels.attention(
            edges.indptr, edges.indices, z, s_src, s_dst, out, begin, end,
            heads=heads, slope=slope, drop=drop, ids=ids, **sums,
        )  # fmt: skip

    def attention_grad_destination(
        self,
        out: Array,
        out_pos: Array,
        a_pos: Array,
        dout: Array,
        delta: Array,
        ds_dst: Array,
        begin: int,
        end: int,
        *,
        heads: int,
        slope: float,
    ) -> None:
        """Write the destination's part of attention's gradient."""
        self.kernels.attention_grad_dst(out, out_pos, a_pos, dout, delta, ds_dst, begin, end, heads=heads, slope=slope)

    def attention_grad_source(
        self,
        transpose: PlacedCsr,
        z: Array,
        s_src: Array,
        s_dst: Array,
        lse: Array,
        delta: Array,
        dout: Array,
        dz: Array,
        ds_src: Array,
        begin: int,
        end: int,
        *,
        heads: int,
        slope: float,
        drop: Dropout | None = None,
        ids: Index | None = None,
        accumulate: bool = False,
    ) -> None:
        """Write the sources' part of attention's gradient."""
        self.kernels.attention_grad_src(
            transpose.indptr, transpose.indices, z, s_src, s_dst, lse, delta, dout, dz, ds_src, begin, end,
            heads=heads, slope=slope, drop=drop, ids=ids, accumulate=accumulate,
        )  # fmt: skip

    def segment_sum(
        self,
        edges: PlacedCsr,
        messages: Array,
        out: Array,
        begin: int,
        end: int,
        *,
        row_scale: HostArray | None = None,
        accumulate: bool = False,
    ) -> None:
        """Write the scaled sum of messages."""
        self.kernels.segment_sum(edges.indptr, messages, out, begin, end, row_scale=row_scale, accumulate=accumulate)

    def segment_sum_grad(
        self,
        edges: PlacedCsr,
        dout: Array,
        dmessages: Array,
        begin: int,
        end: int,
        *,
        row_scale: HostArray | None = None,
    ) -> None:
        """Write the gradient of the sum."""
        self.kernels.segment_spread(edges.indptr, dout, dmessages, begin, end, row_scale=row_scale)

    def segment_max(self, edges: PlacedCsr, messages: Array, out: Array, ties: Array, begin: int, end: int) -> None:
        """Write the maximum of messages."""
        self.kernels.segment_max(edges.indptr, messages, out, ties, begin, end)

    def segment_max_grad(
        self,
        edges: PlacedCsr,
        messages: Array,
        out: Array,
        share: Array,
        dmessages: Array,
        begin: int,
        end: int,
    ) -> None:
        """Write the gradient of the maximum of messages."""
        self.kernels.segment_max_grad(edges.indptr, messages, out, share, dmessages, begin, end)

    def segment_softmax(
        self,
        edges: PlacedCsr,
        scores: Array,
        messages: Array,
        out: Array,
        lse: Array,
        begin: int,
        end: int,
        *,
        heads: int,
    ) -> None:
        """Write the sum of messages weighted by the softmax of their scores."""
        self.kernels.segment_softmax(edges.indptr, scores, messages, out, lse, begin, end, heads=heads)

    def segment_softmax_grad(
        self,
        edges: PlacedCsr,
        scores: Array,
        messages: Array,
        out: Array,
        lse: Array,
        dout: Array,
        dscores: Array,
        dmessages: Array,
        begin: int,
        end: int,
        *,
        heads: int,
    ) -> None:
        """Write the gradient of that sum."""
        self.kernels.segment_softmax_grad(
            edges.indptr, scores, messages, out, lse, dout, dscores, dmessages, begin, end, heads=heads
        )

    def dropout(self, x: Array, out: Array, ids: Index, drop: Dropout, *, first_column: int = 0) -> None:
        """Write the rows with dropout applied."""
        self.kernels.dropout(x, out, ids, 0, len(x), drop=drop, first_column=first_column)

    def dropout_sparse(self, x: PlacedCsr, out: PlacedCsr, ids: Index, begin: int, end: int, drop: Dropout) -> None:
        """Write the values of sparse rows with dropout applied."""
        self.kernels.dropout_csr(x.indptr, x.indices, x.values, out.values, ids, begin, end, drop=drop)


class NativeBackend(HostBackend):
    """The C++ kernels."""

    kernels = native


class ReferenceBackend(HostBackend):
    """Plain NumPy: slow, and the definition of every method. Sums are taken in float64."""

    kernels = reference


class _WritableAlias:
    """A read-only array presented as a writable one."""

    def __init__(self, array: HostArray) -> None:
        self.kept = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}
