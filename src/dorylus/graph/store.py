"""The store: a graph as a folder of raw arrays and a manifest, memory-mapped when opened.

The format is specified in docs/store-format.md. A store appears whole or not at all: it is written into a temporary
folder beside its place and renamed.
"""

import json
import os
import secrets
import shutil
import zlib
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.errors import DataError, GraphError
from dorylus.graph import validate
from dorylus.graph.arrays import AnyArray
from dorylus.graph.features import SparseFeatures
from dorylus.graph.graph import MASKS, Graph

FORMAT = "dorylus-graph"
VERSION = 1
MANIFEST = "manifest.json"
BLOCK_BYTES = 1 << 24

_DTYPES = {"<i8", "<i4", "<f4", "|u1", "|b1"}
_SPARSE = ("features.indptr", "features.indices", "features.values")


def is_store(path: str | PathLike[str]) -> bool:
    """Whether ``path`` is a folder with a store's manifest."""
    return (Path(path) / MANIFEST).is_file()


def save(graph: Graph, path: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Write ``graph`` as a store at ``path``; one that is there already is replaced only with ``overwrite``."""
    target = Path(path)
    _check_target(target, overwrite)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        draft.mkdir(parents=True)
        _write_all(graph, draft)
        _put_in_place(draft, target)
    except OSError as error:
        raise DataError(
            f"could not write the store {target}: {error}. Check the free space and permissions."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def open_store(path: str | PathLike[str], *, verify: bool = False) -> Graph:
    """The graph of the store at ``path``, its arrays read-only views of the files.

    Sizes are always compared with the manifest, checksums with ``verify``.
    """
    folder = Path(path)
    manifest = _read_manifest(folder)
    try:
        arrays = {name: _map(folder, name, entry) for name, entry in manifest["arrays"].items()}
        if verify:
            for name, entry in manifest["arrays"].items():
                _verify(folder, name, arrays[name], int(entry["crc32"]))
        return _graph(manifest, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, GraphError) as error:
        raise DataError(f"the store {folder} is damaged: {error}. Write it again with graph.save.") from error


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if not is_store(target):
        raise DataError(f"{target} exists and is not a store. Choose another place, or remove it yourself.")
    if not overwrite:
        raise DataError(f"the store {target} exists already. Pass overwrite=True to replace it.")


def _write_all(graph: Graph, folder: Path) -> None:
    arrays = _arrays(graph)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "name": graph.name,
        "directed": graph.directed,
        "num_vertices": graph.num_vertices,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "arrays": {name: _write(folder, name, array) for name, array in arrays.items()},
    }
    with open(folder / MANIFEST, "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(folder)


def _arrays(graph: Graph) -> dict[str, AnyArray]:
    arrays: dict[str, AnyArray | None] = {
        "indptr": graph.indptr,
        "indices": graph.indices,
        "edge_weight": graph.edge_weight,
        "labels": graph.labels,
        **{name: getattr(graph, name) for name in MASKS},
    }
    if isinstance(graph.features, SparseFeatures):
        parts = (graph.features.indptr, graph.features.indices, graph.features.values)
        arrays.update(zip(_SPARSE, parts, strict=True))
    else:
        arrays["features"] = graph.features
    return {name: array for name, array in arrays.items() if array is not None}


def _write(folder: Path, name: str, array: AnyArray) -> dict[str, Any]:
    """Write one array and give its manifest entry."""
    dtype = array.dtype.newbyteorder("<")
    checksum = 0
    with open(_file(folder, name), "wb") as file:
        for block in _blocks(array):
            raw = np.ascontiguousarray(block, dtype=dtype).reshape(-1).view(np.uint8).data
            checksum = zlib.crc32(raw, checksum)
            file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    return {"dtype": dtype.str, "shape": list(array.shape), "bytes": array.nbytes, "crc32": checksum}


def _blocks(array: AnyArray) -> list[AnyArray]:
    row_bytes = max(array.nbytes // max(len(array), 1), 1)
    step = max(BLOCK_BYTES // row_bytes, 1)
    return [array[begin : begin + step] for begin in range(0, len(array), step)]


def _put_in_place(draft: Path, target: Path) -> None:
    """Rename ``draft`` to ``target``; an old store steps aside first and comes back if the rename fails."""
    aside = draft.with_name(draft.name + ".old")
    if target.exists():
        os.rename(target, aside)
    try:
        os.rename(draft, target)
    except OSError:
        if aside.exists():
            os.rename(aside, target)
        raise
    _sync_folder(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{folder} is not a store: cannot read its {MANIFEST} ({error.strerror}).") from error
    except ValueError as error:
        raise DataError(f"the store {folder} is damaged: {MANIFEST} is not JSON ({error}). Write it again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{folder} is not a store: its {MANIFEST} does not say format {FORMAT!r}.")
    if manifest.get("version") != VERSION:
        raise DataError(
            f"the store {folder} has version {manifest.get('version')}, but this Dorylus reads version {VERSION}. "
            "Use the Dorylus that wrote it, or write it again with this one."
        )
    return manifest


def _map(folder: Path, name: str, entry: dict[str, Any]) -> AnyArray:
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"array {name!r} has unknown type {entry['dtype']!r}")
    dtype, shape = np.dtype(entry["dtype"]), tuple(int(length) for length in entry["shape"])
    expected = int(np.prod(shape, dtype=object)) * dtype.itemsize
    path = _file(folder, name)
    found = path.stat().st_size if path.is_file() else -1
    if found != expected or entry["bytes"] != expected:
        state = "is missing" if found < 0 else f"has {found:,} bytes instead of {expected:,}"
        raise DataError(f"the store {folder} is damaged: {path.name} {state}. Write it again, or copy it whole.")
    if expected == 0:
        return np.empty(shape, dtype=dtype)  # an empty file cannot be mapped
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=shape))


def _verify(folder: Path, name: str, array: AnyArray, expected: int) -> None:
    checksum = 0
    for block in _blocks(array):
        checksum = zlib.crc32(block.reshape(-1).view(np.uint8).data, checksum)
    if checksum != expected:
        raise DataError(
            f"the store {folder} is damaged: the checksum of {name} differs. Write it again, or copy it anew."
        )


def _graph(manifest: dict[str, Any], arrays: dict[str, AnyArray]) -> Graph:
    unknown = set(arrays) - {"indptr", "indices", "edge_weight", "labels", "features", *MASKS, *_SPARSE}
    if unknown:
        raise ValueError(f"unknown array {min(unknown)!r}")
    if "features" in arrays:
        features: Any = arrays["features"]
    else:
        indptr, indices, values = (arrays[name] for name in _SPARSE)
        features = SparseFeatures(indptr, indices, values, int(manifest["num_features"]))
        features.check_columns()
    graph = Graph(
        arrays["indptr"],
        arrays["indices"],
        features=features,
        labels=arrays.get("labels"),
        edge_weight=arrays.get("edge_weight"),
        **{name: arrays[name] for name in MASKS},
        directed=bool(manifest["directed"]),
        name=str(manifest["name"]),
        num_classes=int(manifest["num_classes"]),
        trust="everything",  # checked before it was saved; bounds are checked again, as kernels rely on them
    )
    _check_counts(manifest, graph)
    if graph.labels is not None:  # a pass over the vertices, not over edges or features
        validate.check_labels(graph.labels, graph.num_vertices, graph.num_classes)
    return graph


def _check_counts(manifest: dict[str, Any], graph: Graph) -> None:
    for name in ("num_vertices", "num_edges", "num_features"):
        if manifest[name] != getattr(graph, name):
            raise ValueError(f"the manifest says {name} = {manifest[name]}, the arrays say {getattr(graph, name)}")
    if graph.labels is not None and len(graph.labels) != graph.num_vertices:
        raise ValueError(f"{len(graph.labels)} labels for {graph.num_vertices} vertices")
    if graph.edge_weight is not None and graph.edge_weight.shape != graph.indices.shape:
        raise ValueError(f"{len(graph.edge_weight)} weights for {graph.num_edges} edges")


def _file(folder: Path, name: str) -> Path:
    if not name.replace("_", "").replace(".", "").isalnum():
        raise ValueError(f"array name {name!r}")
    return folder / f"{name}.bin"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
