"""Open Graph Benchmark: node-property data sets in OGB's library-agnostic form (NumPy dictionaries)."""

from os import PathLike
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np

from dorylus.errors import DataError
from dorylus.extras import optional
from dorylus.graph.arrays import AnyArray
from dorylus.graph.coerce import mask_from_numbers
from dorylus.graph.datasets.download import cache_folder
from dorylus.graph.graph import Graph
from dorylus.graph.interop.conversion import (
    array,
    check_source,
    dense_features,
    from_edge_arrays,
    labels,
    split_numbers,
)
from dorylus.graph.store import is_store, open_store

INSTALL = 'pip install "dorylus[ogb]"'
SPLITS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}


def from_ogb(dataset: Any, *, root: str | PathLike[str] | None = None, download: bool = True) -> Graph:
    """The graph of a ``NodePropPredDataset``, or of the data set of that name under ``root``.

    Labels of one task become class numbers (NaN: none), those of several a label matrix. Edge features (edge_feat) are
    dropped: an edge has at most one weight. A set given by name is saved as a store beside OGB's files: it opens at
    once, and OGB cannot read its own cache with torch 2.6 or later.
    """
    if not isinstance(dataset, str):
        check_source("ogb", dataset, "the name of a data set or a NodePropPredDataset", "get_idx_split")
        return _convert(dataset)
    folder = cache_folder(root) / "ogb"
    store = folder / f"{dataset}.store"
    if is_store(store):
        return open_store(store)
    if not download and not (folder / dataset.replace("-", "_")).is_dir():
        raise DataError(
            f"{dataset} is not in {folder} and download=False. Put OGB's folder there, or allow the download."
        )
    graph = _convert(_fetch(dataset, folder))
    graph.save(store)
    return graph


def _fetch(name: str, folder: Path) -> Any:
    open_dataset = optional("ogb.nodeproppred", INSTALL).NodePropPredDataset
    try:
        return open_dataset(name=name, root=str(folder))
    except UnpicklingError as error:
        processed = folder / name.replace("-", "_") / "processed"
        raise DataError(
            f"OGB cannot read its own cache of {name} with this torch. Remove {processed} and try again."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"OGB cannot load {name}: {str(error).splitlines()[0]} Check the name and the network."
        ) from error


def _convert(dataset: Any) -> Graph:
    parts, targets = dataset[0]
    if "edge_index" not in parts:
        raise DataError(f"the OGB set {dataset.name} has several node types. Only homogeneous graphs can be read.")
    num_vertices = int(parts["num_nodes"])
    source, destination = parts["edge_index"]
    split = dataset.get_idx_split()
    attributes: dict[str, Any] = {
        field: mask_from_numbers(array(split[key]), num_vertices) for field, key in SPLITS.items() if key in split
    }
    if parts.get("node_feat") is not None:
        attributes["features"] = parts["node_feat"]
    attributes["labels"] = labels(np.asarray(targets))
    return from_edge_arrays(source, destination, num_vertices, name=str(dataset.name), **attributes)


def to_ogb(graph: Graph) -> tuple[dict[str, Any], AnyArray | None, dict[str, AnyArray]]:
    """(graph dictionary, labels [N, tasks], split): as in a ``NodePropPredDataset``."""
    parts: dict[str, Any] = {
        "edge_index": np.stack(graph.edge_list()).astype(np.int64),
        "edge_feat": None if graph.edge_weight is None else graph.edge_weight[:, None],
        "node_feat": dense_features(graph) if graph.num_features else None,
        "num_nodes": graph.num_vertices,
    }
    targets = graph.labels if graph.labels is None or graph.multilabel else graph.labels[:, None]
    numbers = split_numbers(graph)
    return parts, targets, {key: numbers[field] for field, key in SPLITS.items()}
