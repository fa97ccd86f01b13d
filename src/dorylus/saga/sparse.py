"""Sparse feature rows and the one product they enter: the first linear map of a program."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as f
from numpy.typing import NDArray
from torch import Tensor

from dorylus.backends import Backend, NativeBackend


@dataclass(frozen=True)
class SparseRows:
    """Some rows of a sparse feature matrix: ``indptr`` holds their offsets into the whole matrix's entries.

    ``backend`` multiplies them by weights.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    num_columns: int
    backend: Backend = field(default_factory=NativeBackend, repr=False, compare=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns), as of a tensor."""
        return len(self.indptr) - 1, self.num_columns

    def to_dense(self) -> Tensor:
        """The same rows as an ordinary tensor."""
        out = np.zeros(self.shape, np.float32)
        entries = slice(self.indptr[0], self.indptr[-1])
        rows = np.repeat(np.arange(len(out)), np.diff(self.indptr))
        np.add.at(out, (rows, self.indices[entries]), self.values[entries])
        return torch.from_numpy(out)


class _SparseProduct(torch.autograd.Function):
    """x_NF @ w_HFᵀ for sparse x: the product and the weight's gradient never touch a zero of x."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: SparseRows) -> Tensor:
        ctx.x = x
        w_FH = x.backend.from_torch(weight.detach().t())
        out = x.backend.allocate(x.shape[0], weight.shape[0])
        x.backend.gather(x.backend.place_csr(x.indptr, x.indices, x.values), w_FH, out, 0, len(out))
        return x.backend.to_torch(out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x: SparseRows = ctx.x
        dz = x.backend.from_torch(grads[0])
        dw_FH = x.backend.allocate(x.num_columns, dz.shape[1], zero=True)
        x.backend.gather_outer(x.backend.place_csr(x.indptr, x.indices, x.values), dz, dw_FH)
        return x.backend.to_torch(dw_FH).t(), None


def linear(x: Tensor | SparseRows, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weightᵀ + bias, for dense rows or sparse ones."""
    if isinstance(x, Tensor):
        return f.linear(x, weight, bias)
    if x.num_columns != weight.shape[1]:  # the kernel would read behind the weights
        raise ValueError(f"rows of {x.num_columns} columns cannot be multiplied by weights for {weight.shape[1]}")
    product: Tensor = _SparseProduct.apply(weight, x)  # type: ignore[no-untyped-call]
    return product if bias is None else product + bias
