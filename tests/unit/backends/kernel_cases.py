"""Random graphs and matrices for the kernels, and the comparison of a kernel with its reference."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
from hypothesis import settings

from dorylus.backends import native, reference

Array = npt.NDArray[Any]

few = settings(max_examples=15, deadline=None)

# Below, at and above a vector of every instruction set; several passes over the columns; an overlap in each.
WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 41, 64, 65, 96, 127, 128, 129, 144, 200, 257]
widths = st.sampled_from(WIDTHS)


@dataclass(frozen=True)
class Case:
    """A graph with duplicate edges, self loops, empty rows and isolated vertices as chance has it, and a row range."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    num_cols: int
    begin: int
    end: int
    rng: np.random.Generator

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    @property
    def range_edges(self) -> slice:
        return slice(int(self.indptr[self.begin]), int(self.indptr[self.end]))

    def matrix(self, rows: int, width: int, *, low: float = -2.0, high: float = 2.0) -> npt.NDArray[np.float32]:
        """A random matrix whose rows are sometimes padded."""
        pad = int(self.rng.choice([0, 0, 3, 16]))
        padded = self.rng.uniform(low, high, (rows, width + pad)).astype(np.float32)
        return padded[:, :width]

    def vector(self, length: int) -> npt.NDArray[np.float32]:
        return self.rng.uniform(-2, 2, length).astype(np.float32)

    def bf16(self, rows: int, width: int) -> npt.NDArray[np.uint16]:
        """A random bfloat16 matrix whose rows are sometimes padded."""
        exact = self.matrix(rows, width)
        out = np.zeros((rows, width + 5), np.uint16)[:, :width]
        reference.to_bf16(exact, out, 0, rows)
        return out

    def ids(self) -> npt.NDArray[np.int32]:
        return self.rng.permutation(max(self.num_rows, self.num_cols)).astype(np.int32) * 7

    def transposed(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        indptr, indices, _ = reference.csr_transpose(self.indptr, self.indices, self.num_cols)
        return indptr, indices


@st.composite
def cases(draw: st.DrawFn, max_rows: int = 12, max_edges: int = 60, square: bool = False) -> Case:
    num_rows = draw(st.integers(1, max_rows))
    num_cols = num_rows if square else num_rows + draw(st.integers(0, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_edges = draw(st.integers(0, max_edges))
    rows = np.sort(rng.integers(0, num_rows, num_edges))
    indptr = np.searchsorted(rows, np.arange(num_rows + 1)).astype(np.int64)
    indices = rng.integers(0, num_cols, num_edges).astype(np.int32)
    for v in range(num_rows):
        indices[indptr[v] : indptr[v + 1]].sort()
    begin = draw(st.integers(0, num_rows))
    return Case(indptr, indices, num_cols, begin, draw(st.integers(begin, num_rows)), rng)


def large_case(num_rows: int = 300, num_edges: int = 9_000, seed: int = 0) -> Case:
    """A graph whose rows have more edges than a batch of the attention kernel holds."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, num_rows, num_edges) ** 2 // num_rows
    cols = rng.integers(0, num_rows, num_edges)
    indptr, indices, _ = native.csr_build(rows, cols, num_rows, num_rows)
    return Case(indptr, indices, num_rows, 0, num_rows, rng)


def agree(name: str, inputs: list[Any], outputs: list[Array], begin: int, end: int, **options: Any) -> None:
    """The kernel and its reference leave the same outputs, also outside the row range."""
    mine, theirs = [o.copy() for o in outputs], [o.copy() for o in outputs]
    getattr(native, name)(*inputs, *mine, begin, end, **options)
    getattr(reference, name)(*inputs, *theirs, begin, end, **options)
    close(mine, theirs)


def close(mine: list[Array], theirs: list[Array], rtol: float = 2e-5, atol: float = 2e-5) -> None:
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def differences(loss: Callable[..., float], inputs: list[Any], step: float = 1e-6) -> list[Any]:
    """The gradient of a scalar function with respect to each of its float64 arrays, by central differences."""
    gradients = [np.zeros_like(x) for x in inputs]
    for x, gradient in zip(inputs, gradients, strict=True):
        for at in np.ndindex(x.shape):
            value = x[at]
            x[at] = value + step
            up = loss(*inputs)
            x[at] = value - step
            gradient[at] = (up - loss(*inputs)) / (2 * step)
            x[at] = value
    return gradients
