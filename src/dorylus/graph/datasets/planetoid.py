"""Cora, Citeseer and Pubmed from the original ``ind.*`` files, with the standard public split.

The split is 20 training vertices per class, the 500 after them for validation, and the 1,000 of ``test.index``.
Repeated edges and self loops are removed, as in PyG. The files are pickles: they are read without executing them.
"""

import pickle
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dorylus.errors import DataError, WriteError
from dorylus.graph.arrays import AnyArray
from dorylus.graph.coerce import mask_from_numbers
from dorylus.graph.datasets.download import cache_folder, fetch
from dorylus.graph.features import SparseFeatures, sparse_or_dense
from dorylus.graph.graph import Graph

SHA256 = {  # of the files as published
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
}


class CsrParts(NamedTuple):
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


class _Recorded:
    """Records the arguments and state that a pickle would build an object from."""

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.state: Any = None

    def __new__(cls, *_: Any) -> "_Recorded":
        recorded = super().__new__(cls)
        recorded.given, recorded.state = (), None
        return recorded

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _RecordedArray(_Recorded):
    """Stands for numpy.ndarray and for the function that makes an empty one."""


class _Type(_Recorded):
    """Stands for numpy.dtype."""


class _RecordedMatrix(_Recorded):
    """Stands for scipy.sparse.csr_matrix."""


class _Lists(dict[Any, Any]):
    """Stands for collections.defaultdict(list)."""

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a dictionary with a state")


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _RecordedArray,
    ("numpy._core.multiarray", "_reconstruct"): _RecordedArray,
    ("numpy", "ndarray"): _RecordedArray,
    ("numpy", "dtype"): _Type,
    ("scipy.sparse.csr", "csr_matrix"): _RecordedMatrix,
    ("scipy.sparse._csr", "csr_matrix"): _RecordedMatrix,
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


def _resolve(recorded: Any) -> Any:
    if isinstance(recorded, _RecordedMatrix):
        state = recorded.state
        shape = tuple(int(length) for length in state["_shape"])
        return CsrParts(
            _resolve(state["indptr"]), _resolve(state["indices"]), _resolve(state["data"]), (shape[0], shape[1])
        )
    if isinstance(recorded, _RecordedArray):
        _version, shape, kind, by_column, raw = recorded.state
        data = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        return np.frombuffer(data, dtype=_number_type(kind)).reshape(shape, order="F" if by_column else "C")
    if isinstance(recorded, dict):
        return dict(recorded)
    raise ValueError("it holds neither an array nor a dictionary")


def _number_type(kind: Any) -> np.dtype[Any]:
    code, order = kind.given[0], kind.state[1]
    dtype: np.dtype[Any] = np.dtype((order if order in "<>" else "") + code)
    if dtype.kind not in "iufb":
        raise ValueError(f"its array holds {dtype}, not numbers")
    return dtype


BASE_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
NAMES = ("cora", "citeseer", "pubmed")
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
NUM_VAL = 500


def load(
    name: str,
    *,
    root: str | PathLike[str] | None = None,
    download: bool = True,
    base_url: str = BASE_URL,
    sums: dict[str, str] = SHA256,
) -> Graph:
    """The data set ``name``, from ``root`` (or its planetoid/ or PyG's NAME/raw/ folder), downloaded if absent."""
    folder = _folder(name, cache_folder(root))
    if not download and (missing := _missing(name, folder)):
        raise DataError(f"with download=False, {_lacks(name, folder, missing)}. Put them there, or allow the download.")
    for path in _missing(name, folder):
        try:
            fetch(f"{base_url}/{path.name}", path, sha256=sums.get(path.name))
        except WriteError:
            raise
        except DataError as error:
            raise DataError(f"{error.message} In all, {_lacks(name, folder, _missing(name, folder))}.") from error
    return _assemble(name, {part: _read(folder / f"ind.{name}.{part}") for part in PARTS})


def _folder(name: str, root: Path) -> Path:
    """The folder with most of the files; if none has any, the download folder."""
    fetched = root / "planetoid"
    candidates = [root, fetched, root / name / "raw", root / name.capitalize() / "raw"]
    fullest = min(candidates, key=lambda folder: len(_missing(name, folder)))
    return fullest if len(_missing(name, fullest)) < len(PARTS) else fetched


def _missing(name: str, folder: Path) -> list[Path]:
    return [path for part in PARTS if not (path := folder / f"ind.{name}.{part}").is_file()]


def _lacks(name: str, folder: Path, missing: list[Path]) -> str:
    names = ", ".join(path.name for path in missing)
    return f"{name} lacks {len(missing)} of its {len(PARTS)} files in {folder}: {names}"


def _read(path: Path) -> Any:
    if path.name.endswith(".test.index"):
        try:
            return np.loadtxt(path, dtype=np.int64, ndmin=1)
        except ValueError as error:
            raise DataError(
                f"{path} is not a list of vertex numbers: {error}. Remove it, so that it is fetched again."
            ) from error
    return read(path)


def _assemble(name: str, parts: dict[str, Any]) -> Graph:
    """The graph of the parts of a data set.

    Row i of tx and ty belongs to vertex test.index[i]. Citeseer's test vertices skip some numbers: those are isolated
    vertices, which get zero features and, as in PyG, label 0.
    """
    try:
        test, allx, tx = parts["test.index"], parts["allx"], parts["tx"]
        num_known = allx.shape[0]
        num_vertices = max(num_known, int(test.max()) + 1)
        labels = np.zeros(num_vertices, dtype=np.int64)
        labels[:num_known] = parts["ally"].argmax(axis=1)
        labels[test] = parts["ty"].argmax(axis=1)
        num_train = len(parts["y"])
        return Graph.from_edges(
            *_edges(parts["graph"]),
            num_vertices,
            features=sparse_or_dense(_stack(allx, tx, test, num_vertices)),
            labels=labels,
            train_mask=mask_from_numbers(np.arange(num_train), num_vertices),
            val_mask=mask_from_numbers(np.arange(num_train, num_train + NUM_VAL), num_vertices),
            test_mask=mask_from_numbers(test, num_vertices),
            name=name,
            num_classes=parts["ally"].shape[1],
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the files of {name} do not fit together: {error}. Remove them, so that they are fetched."
        ) from error


def _stack(known: CsrParts, test: CsrParts, at: AnyArray, num_vertices: int) -> SparseFeatures:
    """``known`` rows first, row i of ``test`` at vertex ``at[i]``, empty rows for the others."""
    first, last = (
        SparseFeatures.from_csr(part.indptr, part.indices, part.data, part.shape[1]) for part in (known, test)
    )
    row = np.full(num_vertices, first.num_rows + last.num_rows)  # past the end: an empty row
    row[: first.num_rows] = np.arange(first.num_rows)
    row[at] = first.num_rows + np.arange(last.num_rows)
    both = SparseFeatures(
        indptr=np.concatenate(
            [first.indptr, last.indptr[1:] + first.num_nonzeros, [first.num_nonzeros + last.num_nonzeros]]
        ),
        indices=np.concatenate([first.indices, last.indices]),
        values=np.concatenate([first.values, last.values]),
        num_columns=first.num_columns,
    )
    return both.permute(row)


def _edges(neighbours: dict[int, list[int]]) -> tuple[AnyArray, AnyArray]:
    lengths = [len(targets) for targets in neighbours.values()]
    source = np.repeat(np.fromiter(neighbours, dtype=np.int64, count=len(lengths)), lengths)
    targets = (target for row in neighbours.values() for target in row)
    destination = np.fromiter(targets, dtype=np.int64, count=source.size)
    proper = source != destination
    return source[proper], destination[proper]
