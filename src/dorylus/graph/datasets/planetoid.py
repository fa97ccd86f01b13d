"""Cora, Citeseer and Pubmed from the original ``ind.*`` files, with the standard public split.

The split is 20 training vertices a class, the 500 after them for validation, and the 1,000 of ``test.index``.
Repeated edges and self loops are removed, as PyG does.
"""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.errors import DataError, WriteError
from dorylus.graph.arrays import AnyArray
from dorylus.graph.canonical import mask_of
from dorylus.graph.datasets import unpickle
from dorylus.graph.datasets.download import cache_folder, fetch
from dorylus.graph.datasets.planetoid_sums import SHA256
from dorylus.graph.features import SparseFeatures, sparse_if_it_pays
from dorylus.graph.graph import Graph

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
    """The set called ``name``, from ``root`` (or its planetoid/ or PyG's NAME/raw/ folder), fetched there if absent."""
    folder = _folder(name, cache_folder(root))
    if not download and (missing := _missing(name, folder)):
        raise DataError(f"with download=False, {_lacks(name, folder, missing)}. Put them there, or allow the download.")
    for path in _missing(name, folder):
        try:
            fetch(f"{base_url}/{path.name}", path, sha256=sums.get(path.name))
        except WriteError:
            raise
        except DataError as error:
            raise DataError(f"{error} In all, {_lacks(name, folder, _missing(name, folder))}.") from error
    return _assemble(name, {part: _read(folder / f"ind.{name}.{part}") for part in PARTS})


def _folder(name: str, root: Path) -> Path:
    """The folder that has most of the files; the one that they are fetched to where none has any."""
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
    return unpickle.read(path)


def _assemble(name: str, parts: dict[str, Any]) -> Graph:
    """Put the three row blocks together.

    Row i of tx and ty belongs to vertex test.index[i]. Citeseer's test vertices leave out numbers: isolated vertices,
    which get zero features and, as PyG gives them, label 0.
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
            features=sparse_if_it_pays(_stack(allx, tx, test, num_vertices)),
            labels=labels,
            train_mask=mask_of(np.arange(num_train), num_vertices),
            val_mask=mask_of(np.arange(num_train, num_train + NUM_VAL), num_vertices),
            test_mask=mask_of(test, num_vertices),
            name=name,
            num_classes=parts["ally"].shape[1],
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the files of {name} do not fit together: {error}. Remove them, so that they are fetched."
        ) from error


def _stack(known: unpickle.Csr, test: unpickle.Csr, at: AnyArray, num_vertices: int) -> SparseFeatures:
    """``known`` rows first, row i of ``test`` at vertex ``at[i]``, empty rows elsewhere."""
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
