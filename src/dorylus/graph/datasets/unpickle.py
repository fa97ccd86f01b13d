"""Reading the Planetoid pickles without running anything they ask for.

A pickle may call whatever it names. This reader knows the eight names those files use and gives plain stand-ins for
them; any other name is refused. The stand-ins only keep what they are given; ``read`` turns it into arrays itself.
"""

import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dorylus.errors import DataError
from dorylus.graph.arrays import AnyArray


class Csr(NamedTuple):
    """A SciPy CSR matrix as its parts."""

    indptr: AnyArray
    indices: AnyArray
    data: AnyArray
    shape: tuple[int, int]


def read(path: Path) -> Any:
    """The array, CSR matrix or adjacency dictionary in the pickle at ``path``."""
    try:
        with open(path, "rb") as file:
            return _resolve(_Reader(file, encoding="latin1").load())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    except Exception as error:  # a damaged pickle raises almost anything
        raise DataError(f"{path} is not a Planetoid file: {error}. Remove it, so that it is fetched again.") from error


class _Kept:
    """Keeps what a pickle wants to build it from."""

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.state: Any = None

    def __new__(cls, *_: Any) -> "_Kept":
        kept = super().__new__(cls)
        kept.given, kept.state = (), None
        return kept

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_Kept):
    """Stands for numpy.ndarray and for the function that makes an empty one."""


class _Type(_Kept):
    """Stands for numpy.dtype."""


class _Matrix(_Kept):
    """Stands for scipy.sparse.csr_matrix."""


class _Lists(dict[Any, Any]):
    """Stands for collections.defaultdict(list)."""

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a dictionary with a state")


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    ("scipy.sparse._csr", "csr_matrix"): _Matrix,
    ("collections", "defaultdict"): _Lists,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _KNOWN[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}, which no such file needs") from None


def _resolve(kept: Any) -> Any:
    if isinstance(kept, _Matrix):
        state = kept.state
        shape = tuple(int(length) for length in state["_shape"])
        return Csr(_resolve(state["indptr"]), _resolve(state["indices"]), _resolve(state["data"]), (shape[0], shape[1]))
    if isinstance(kept, _Array):
        _version, shape, kind, by_column, raw = kept.state
        data = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        return np.frombuffer(data, dtype=_number_type(kind)).reshape(shape, order="F" if by_column else "C")
    if isinstance(kept, dict):
        return dict(kept)
    raise ValueError("it holds neither an array nor a dictionary")


def _number_type(kind: Any) -> np.dtype[Any]:
    code, order = kind.given[0], kind.state[1]
    dtype: np.dtype[Any] = np.dtype((order if order in "<>" else "") + code)
    if dtype.kind not in "iufb":
        raise ValueError(f"its array holds {dtype}, not numbers")
    return dtype
