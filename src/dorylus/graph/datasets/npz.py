"""Graphs in ``.npz`` archives: the Amazon and Coauthor sets of Shchur et al. (2018), and a plain form of our own.

Archives are read with allow_pickle=False. Their keys distinguish two forms:

- published: adjacency CSR (adj_data, adj_indices, adj_indptr, adj_shape), attributes as CSR (attr_...) or dense
  (attr_matrix), labels. As in PyG, edges become undirected, self loops are dropped, and positive attributes become 1.
  There is no public split: it is drawn from ``seed``; ``split`` holds the shares of training and validation vertices.
- plain: num_nodes, edges [2, E], and optionally labels (-1 for none), features as CSR (feat_...), and the vertex
  numbers train_idx, val_idx, test_idx.
"""

import zipfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.errors import DataError
from dorylus.graph.arrays import AnyArray, FloatArray
from dorylus.graph.coerce import mask_from_numbers
from dorylus.graph.datasets.download import cache_folder, fetch
from dorylus.graph.features import SparseFeatures, sparse_or_dense
from dorylus.graph.generators.sampling import random_masks
from dorylus.graph.graph import Graph
from dorylus.graph.validate import check_offsets

BASE_URL = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
ADDRESSES = {
    "amazon-computers": "amazon_electronics_computers.npz",
    "amazon-photo": "amazon_electronics_photo.npz",
    "coauthor-cs": "ms_academic_cs.npz",
    "coauthor-physics": "ms_academic_phy.npz",
}
PUBLISHED = ("adj_data", "adj_indices", "adj_indptr", "adj_shape", "labels")
PLAIN = ("num_nodes", "edges")


def load_named(
    name: str,
    *,
    root: str | PathLike[str] | None = None,
    download: bool = True,
    base_url: str = BASE_URL,
    split: tuple[float, float] = (0.6, 0.2),
    seed: int = 0,
) -> Graph:
    """One of the published sets, from ``root``, downloaded if absent.

    No checksum is published for these archives: a download is accepted if every member passes its own CRC and the
    members of the published form are there.
    """
    folder = cache_folder(root)
    path = folder / ADDRESSES[name]
    if not path.is_file():
        path = folder / "npz" / ADDRESSES[name]
    if not path.is_file():
        if not download:
            raise DataError(f"{path} is missing and download=False. Put the file there, or allow the download.")
        fetch(f"{base_url}/{path.name}", path, check=_check_archive)
    return load(path, split=split, seed=seed, name=name)


def load(
    path: str | PathLike[str],
    *,
    split: tuple[float, float] = (0.6, 0.2),
    seed: int = 0,
    name: str | None = None,
) -> Graph:
    """The graph of the archive at ``path``; ``split`` and ``seed`` apply only if the archive has no split."""
    path = Path(path)
    name = path.stem if name is None else name
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            if all(key in archive for key in PLAIN):
                return _plain(archive, name)
            if all(key in archive for key in PUBLISHED):
                return _published(archive, name, split, seed)
            raise DataError(
                f"{path} has the members {', '.join(archive.files) or 'nothing'}. A graph archive has "
                f"{', '.join(PLAIN)} or {', '.join(PUBLISHED)}."
            )
    except (
        OSError,
        EOFError,
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
        zipfile.BadZipFile,
    ) as error:
        raise DataError(
            f"cannot read {path} as a graph archive: {error}. Remove it, so that it is fetched or made anew."
        ) from error


def _plain(archive: Mapping[str, Any], name: str) -> Graph:
    num_vertices = int(archive["num_nodes"])
    attributes: dict[str, Any] = {}
    if "labels" in archive:
        attributes["labels"] = archive["labels"]
    if "feat_indptr" in archive:
        attributes["features"] = _features(archive, "feat")
    for mask in ("train", "val", "test"):
        if f"{mask}_idx" in archive:
            attributes[f"{mask}_mask"] = mask_from_numbers(archive[f"{mask}_idx"], num_vertices)
    source, destination = archive["edges"]
    return Graph.from_edges(source, destination, num_vertices, name=name, **attributes)


def _published(archive: Mapping[str, Any], name: str, split: tuple[float, float], seed: int) -> Graph:
    num_vertices = int(archive["adj_shape"][0])
    column, offsets = archive["adj_indices"], np.asarray(archive["adj_indptr"], np.int64)
    check_offsets(offsets, len(column), "adj_indptr")  # differences of descending offsets may overflow
    row = np.repeat(np.arange(num_vertices), np.diff(offsets))
    proper = (row != column) & (archive["adj_data"] != 0)
    return Graph.from_edges(
        row[proper],
        column[proper],
        num_vertices,
        features=_attributes(archive),
        labels=archive["labels"],
        **random_masks(np.random.default_rng(seed), num_vertices, split),
        name=name,
    )


def _attributes(archive: Mapping[str, Any]) -> SparseFeatures | FloatArray | None:
    if "attr_matrix" in archive:
        dense: AnyArray = archive["attr_matrix"]
        return sparse_or_dense(SparseFeatures.from_dense((dense > 0).astype(np.float32)))
    if "attr_indptr" not in archive:
        return None
    return _features(archive, "attr", binary=True)


def _features(archive: Mapping[str, Any], prefix: str, *, binary: bool = False) -> SparseFeatures | FloatArray:
    indptr, indices, values = (archive[f"{prefix}_{part}"] for part in ("indptr", "indices", "data"))
    values = (values > 0).astype(np.float32) if binary else values
    num_columns = int(archive[f"{prefix}_shape"][1])
    return sparse_or_dense(SparseFeatures.from_csr(indptr, indices, values, num_columns))


def _check_archive(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            members = set(archive.namelist())
    except zipfile.BadZipFile as error:
        raise DataError(
            f"what the server sent is not an .npz archive ({error}). Try again, or fetch it by hand."
        ) from error
    missing = sorted(f"{key}.npy" for key in PUBLISHED if f"{key}.npy" not in members)
    if damaged or missing:
        fault = f"a damaged member {damaged}" if damaged else f"no member {missing[0]}"
        raise DataError(f"the archive that the server sent has {fault}. Try again, or fetch it by hand.")
