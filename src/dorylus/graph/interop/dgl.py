"""DGL: a homogeneous ``DGLGraph`` to Graph and back, by the names its own data sets use (feat, label, masks)."""

from typing import Any

import numpy as np

from dorylus.errors import DataError
from dorylus.extras import optional
from dorylus.graph.graph import MASKS, Graph
from dorylus.graph.interop.conversion import array, check_source, dense_features, from_edge_arrays, labels, one_split

INSTALL = "pip install dgl"


def from_dgl(graph: Any, *, weight: str = "weight", split: int | None = None) -> Graph:
    """The graph of a ``DGLGraph``: edges, ndata feat, label and masks, and edata ``weight`` where there is one."""
    check_source("dgl", graph, "a DGLGraph", "ndata", "edata", "num_nodes")
    if not getattr(graph, "is_homogeneous", True):
        raise DataError("the DGL graph has several node or edge types. Convert it first with dgl.to_homogeneous.")
    source, destination = (array(ends) for ends in graph.edges())
    attributes: dict[str, Any] = {}
    for name in MASKS:
        if name in graph.ndata:
            attributes[name] = one_split(array(graph.ndata[name]), split, name).astype(np.bool_)
    if "feat" in graph.ndata:
        attributes["features"] = array(graph.ndata["feat"])
    if "label" in graph.ndata:
        attributes["labels"] = labels(array(graph.ndata["label"]))
    weights = array(graph.edata[weight]).reshape(-1) if weight in graph.edata else None
    return from_edge_arrays(source, destination, int(graph.num_nodes()), weights, **attributes)


def to_dgl(graph: Graph) -> Any:
    """A ``DGLGraph`` whose tensors are copies; sparse features become dense: DGL has no sparse features."""
    dgl, torch = optional("dgl", INSTALL), optional("torch", "pip install torch")
    source, destination = (torch.from_numpy(ends.astype(np.int64)) for ends in graph.edge_list())
    result = dgl.graph((source, destination), num_nodes=graph.num_vertices)
    if graph.num_features:
        result.ndata["feat"] = torch.from_numpy(dense_features(graph).copy())
    if graph.labels is not None:
        result.ndata["label"] = torch.from_numpy(graph.labels.astype(np.float32 if graph.multilabel else np.int64))
    for name in MASKS:
        result.ndata[name] = torch.from_numpy(getattr(graph, name).copy())
    if graph.edge_weight is not None:
        result.edata["weight"] = torch.from_numpy(graph.edge_weight.copy())
    return result
