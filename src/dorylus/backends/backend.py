"""The seam for the array work of a graph server.

A graph server holds matrices of rows x columns and works on the rows ``begin:end`` of one interval at a time. All of
that goes through a :class:`Backend`: ``native`` (C++ kernels), ``reference`` (NumPy, the definition), or any other
object that passes the contract suite (``tests/contract/test_backends.py``). Which one a server uses is handed to it.

Building graphs is host work and does not pass through here: parsing, sorting, CSRs, partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from dorylus.backends.native.dropout import Dropout

HostArray: TypeAlias = NDArray[Any]
"""An array in the memory of the host, as files, messages and callers of the package have it."""

Block: TypeAlias = Any
"""Raw memory of a back end: what ``allocate_block`` returned. It has ``nbytes``."""

Index: TypeAlias = Any
"""int32 numbers of rows, or ids of vertices: a host array, or what ``place`` made of one. A range of it is a view."""


class NumberFormat(Enum):
    """How the numbers of a matrix are stored. Kernels read both formats and write results in float32."""

    FLOAT32 = "float32"
    BF16 = "bf16"


class Matrix(Protocol):
    """Rows x columns of numbers where a back end works on them.

    Outside a back end only its shape is read and ranges of it are taken. A range of rows, or of rows and columns, is a
    view: what a back end writes there is written to the matrix.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, columns)."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, ranges: slice | tuple[slice, slice], /) -> Any:
        """Return a view of some rows, or of some columns of some rows."""


@dataclass(frozen=True, eq=False)
class PlacedCsr:
    """Edges where a back end reads them. Row r holds the edges ``indptr[r] .. indptr[r + 1] - 1``, each a column.

    The weight of edge e from column u to row v is ``row_scale[v] * values[e] * col_scale[u]``; absent factors are 1.
    """

    indptr: Any
    indices: Any
    values: Any = None
    row_scale: Any = None
    col_scale: Any = None


@dataclass(frozen=True, eq=False)
class AttentionSums:
    """What attention keeps of every destination for its gradient: see :meth:`Backend.attention`."""

    lse: Matrix
    out_pos: Matrix
    a_pos: Matrix


class Backend(Protocol):
    """The array work of a graph server.

    Every method is safe to call from several threads on different rows. A method that takes ``begin`` and ``end``
    writes the rows ``begin:end`` of its outputs and no other, and a row's result does not depend on that range.
    ``accumulate`` adds to the rows instead of overwriting them.
    """

    # Memory

    def dtype(self, number_format: NumberFormat) -> np.dtype[Any]:
        """Return the type that numbers of a format have in host memory, in files and in messages."""

    def number_format(self, matrix: Matrix) -> NumberFormat:
        """Return the format of a matrix's numbers."""

    def allocate(
        self, rows: int, columns: int, number_format: NumberFormat = NumberFormat.FLOAT32, *, zero: bool = False
    ) -> Matrix:
        """Return a new matrix; without ``zero`` its content is undefined."""

    def allocate_block(self, num_bytes: int) -> Block:
        """Return raw memory for matrices, aligned as kernels read it best."""

    def matrix_over(self, block: Block, rows: int, columns: int, number_format: NumberFormat) -> Matrix:
        """Return the beginning of a block as a matrix. The content is what the block held."""

    # Exchange with the host and with torch

    def from_host(self, array: HostArray) -> Matrix:
        """Return a host array as a matrix, without a copy where the back end works in host memory.

        The array may be read-only: then the matrix is only read.
        """

    def to_host(self, matrix: Matrix) -> HostArray:
        """Return a matrix as a host array, without a copy where the back end works in host memory."""

    def from_torch(self, tensor: Tensor) -> Matrix:
        """Return what a dense task computed as a matrix."""

    def to_torch(self, matrix: Matrix) -> Tensor:
        """Return a float32 matrix as a tensor that shares its memory."""

    def place(self, index: HostArray) -> Index:
        """Return ids or numbers of rows where kernels read them, for an array that is used again and again."""

    def place_csr(
        self,
        indptr: HostArray,
        indices: HostArray,
        values: HostArray | None = None,
        row_scale: HostArray | None = None,
        col_scale: HostArray | None = None,
    ) -> PlacedCsr:
        """Return edges, or sparse rows, where kernels read them; arrays that are there already stay as they are.

        In host memory they are not copied: the arrays may be paged.
        """

    def synchronise(self) -> None:
        """Wait until all work that was started is done."""

    # Rows

    def store(self, source: Matrix, target: Matrix) -> None:
        """Write a matrix over another of the same shape, in the other's format."""

    def widened(self, matrix: Matrix) -> Matrix:
        """Return the numbers in float32: the matrix itself if it has them so, else a copy."""

    def copy(self, matrix: Matrix) -> Matrix:
        """Return a copy in the same format."""

    def clear(self, matrix: Matrix) -> None:
        """Write zeros."""

    def add(self, source: Matrix, target: Matrix) -> None:
        """Add a float32 matrix to another of the same shape."""

    def divide(self, dividend: Matrix, divisor: Matrix, out: Matrix) -> None:
        """Write the elementwise quotient of float32 matrices; ``out`` may be the dividend."""

    def take_rows(self, matrix: Matrix, index: Index, number_format: NumberFormat = NumberFormat.FLOAT32) -> Matrix:
        """Return a new matrix whose row k is row ``index[k]``."""

    def scatter_add(self, source: Matrix, index: Index, target: Matrix) -> None:
        """Add row k of the source to row ``index[k]`` of the target, in the order of k; both float32."""

    def clear_rows(self, matrix: Matrix, index: Index) -> None:
        """Write zeros into these rows."""

    # Gather: a reduction over the rows of neighbours

    def gather(
        self, edges: PlacedCsr, x: Matrix, out: Matrix, begin: int, end: int, *, accumulate: bool = False
    ) -> None:
        """Write out[v] = the sum over edges (v, u) of their weight times x[u]. Also the gradient, on the transpose."""

    def gather_max(self, edges: PlacedCsr, x: Matrix, out: Matrix, ties: Matrix, begin: int, end: int) -> None:
        """Write the columnwise maximum over a row's edges, and how many attain it; 0 and 1 for an empty row."""

    def gather_max_grad(
        self,
        transpose: PlacedCsr,
        x: Matrix,
        out: Matrix,
        share: Matrix,
        dx: Matrix,
        begin: int,
        end: int,
        *,
        accumulate: bool = False,
    ) -> None:
        """Write dx[u] = the sum over edges u -> v of share[v] = dout[v] / ties[v], where x[u] equals out[v]."""

    def gather_outer(self, edges: PlacedCsr, dz: Matrix, dw: Matrix) -> None:
        """Add values[e] * dz[v] to dw[u] for every edge (v, u): the weight gradient of a product with sparse rows."""

    # Attention, with columns laid out head by head

    def attention(
        self,
        edges: PlacedCsr,
        z: Matrix,
        s_src: Matrix,
        s_dst: Matrix,
        out: Matrix,
        begin: int,
        end: int,
        *,
        heads: int,
        slope: float,
        kept: AttentionSums | None = None,
        drop: Dropout | None = None,
        ids: Index | None = None,
    ) -> None:
        """Write out[v] = the sum over edges (v, u) of alpha * keep / (1 - p) * z[u].

        alpha is the softmax over v's edges of leaky_relu(s_dst[v] + s_src[u], slope). ``kept`` receives, for training,
        the logarithm of its denominator (``lse``) and, of edges whose score is positive before the leaky ReLU, their
        part of out (``out_pos``) and of the sum of alpha (``a_pos``). An empty row gives 0.
        """

    def attention_grad_destination(
        self,
        out: Matrix,
        out_pos: Matrix,
        a_pos: Matrix,
        dout: Matrix,
        delta: Matrix,
        ds_dst: Matrix,
        begin: int,
        end: int,
        *,
        heads: int,
        slope: float,
    ) -> None:
        """Write delta = <dout, out> by head, and ds_dst = (1 - slope) * (<dout, out_pos> - delta * a_pos)."""

    def attention_grad_source(
        self,
        transpose: PlacedCsr,
        z: Matrix,
        s_src: Matrix,
        s_dst: Matrix,
        lse: Matrix,
        delta: Matrix,
        dout: Matrix,
        dz: Matrix,
        ds_src: Matrix,
        begin: int,
        end: int,
        *,
        heads: int,
        slope: float,
        drop: Dropout | None = None,
        ids: Index | None = None,
        accumulate: bool = False,
    ) -> None:
        """Write the gradients of sources u over their edges u -> v, which are the rows of the transpose.

        dz[u] = the sum of alpha * keep / (1 - p) * dout[v];
        ds_src[u] = the sum of alpha * (keep / (1 - p) * <dout[v], z[u]> - delta[v]) * leaky'.
        """

    # Segments: reductions of messages in edge order. Row 0 of the messages is the first edge of row ``begin``

    def segment_sum(
        self,
        edges: PlacedCsr,
        messages: Matrix,
        out: Matrix,
        begin: int,
        end: int,
        *,
        row_scale: HostArray | None = None,
        accumulate: bool = False,
    ) -> None:
        """Write row_scale[v] * the sum of v's messages."""

    def segment_sum_grad(
        self,
        edges: PlacedCsr,
        dout: Matrix,
        dmessages: Matrix,
        begin: int,
        end: int,
        *,
        row_scale: HostArray | None = None,
    ) -> None:
        """Write row_scale[v] * dout[v] for every message of v."""

    def segment_max(self, edges: PlacedCsr, messages: Matrix, out: Matrix, ties: Matrix, begin: int, end: int) -> None:
        """Write the columnwise maximum of v's messages, and how many attain it; 0 and 1 for an empty row."""

    def segment_max_grad(
        self, edges: PlacedCsr, messages: Matrix, out: Matrix, share: Matrix, dmessages: Matrix, begin: int, end: int
    ) -> None:
        """Write share[v] = dout[v] / ties[v] for the messages of v that equal out[v], and 0 for the others."""

    def segment_softmax(
        self,
        edges: PlacedCsr,
        scores: Matrix,
        messages: Matrix,
        out: Matrix,
        lse: Matrix,
        begin: int,
        end: int,
        *,
        heads: int,
    ) -> None:
        """Write the sum of v's messages weighted by the softmax of their scores, and the log of its denominator."""

    def segment_softmax_grad(
        self,
        edges: PlacedCsr,
        scores: Matrix,
        messages: Matrix,
        out: Matrix,
        lse: Matrix,
        dout: Matrix,
        dscores: Matrix,
        dmessages: Matrix,
        begin: int,
        end: int,
        *,
        heads: int,
    ) -> None:
        """Write dmessages = alpha * dout[v] and dscores = alpha * (<dout[v], message> - <dout[v], out[v]>) by head."""

    # Dropout

    def dropout(self, x: Matrix, out: Matrix, ids: Index, drop: Dropout, *, first_column: int = 0) -> None:
        """Write x / (1 - p) where kept and 0 where dropped; ``out`` may be x. ``ids`` are the rows' original ids.

        ``first_column``, a multiple of 4, is the number of the first column where x are some columns of a matrix.
        """

    def dropout_sparse(self, x: PlacedCsr, out: PlacedCsr, ids: Index, begin: int, end: int, drop: Dropout) -> None:
        """Write the same into the values of sparse rows: equals dropout of the dense ones."""
