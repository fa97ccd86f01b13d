"""PyTorch Geometric: ``Data`` to Graph and back."""

from typing import Any

import numpy as np

from dorylus.errors import DataError
from dorylus.extras import optional
from dorylus.graph.features import SparseFeatures
from dorylus.graph.graph import MASKS, Graph
from dorylus.graph.interop.conversion import array, check_source, from_edge_arrays, labels, one_split, sparse_features

INSTALL = 'pip install "dorylus[pyg]"'


def from_pyg(data: Any, *, split: int | None = None) -> Graph:
    """The graph of a ``Data``: x, edge_index or adj_t, edge_weight (or a single edge_attr per edge), y, masks.

    Every edge is kept, repeats included; the graph counts as undirected when each edge has its reverse.
    """
    if hasattr(data, "edge_types"):
        raise DataError(
            "the PyG data has several types of vertices or edges, and a graph has one of each: give "
            "data.to_homogeneous(), or one type's own Data."
        )
    check_source("pyg", data, "a Data with edge_index (of a data set, dataset[0])", "get", "num_nodes")
    source, destination, weight = _edges(data)
    attributes: dict[str, Any] = {name: one_split(array(data[name]), split, name) for name in MASKS if name in data}
    if data.get("x") is not None:
        attributes["features"] = _features(data.x)
    if data.get("y") is not None:
        attributes["labels"] = labels(array(data.y))
    attributes["name"] = str(data.get("name") or "graph")
    return from_edge_arrays(source, destination, int(data.num_nodes), weight, **attributes)


def to_pyg(graph: Graph) -> Any:
    """A ``Data`` whose tensors are copies, edges by ascending destination; sparse features become a sparse x."""
    torch, data_of = optional("torch", "pip install torch"), optional("torch_geometric.data", INSTALL).Data
    data = data_of(
        edge_index=torch.from_numpy(np.stack(graph.edge_list()).astype(np.int64)), num_nodes=graph.num_vertices
    )
    if graph.num_features:
        data.x = _feature_tensor(torch, graph)
    if graph.labels is not None:
        data.y = torch.from_numpy(graph.labels.astype(np.float32 if graph.multilabel else np.int64))
    if graph.edge_weight is not None:
        data.edge_weight = torch.from_numpy(graph.edge_weight.copy())
    for name in MASKS:
        data[name] = torch.from_numpy(getattr(graph, name).copy())
    data.name = graph.name
    return data


def _edges(data: Any) -> tuple[Any, Any, Any]:
    """(source, destination, weight or None) from edge_index, or from adj_t, whose rows are destinations."""
    if data.get("edge_index") is not None:
        edges = array(data.edge_index)
        if edges.ndim != 2 or len(edges) != 2:
            turned = edges.ndim == 2 and edges.shape[1] == 2
            raise DataError(
                f"edge_index of the PyG data has shape {list(edges.shape)}, but its shape is [2, edges]: "
                + ("give edge_index.t()." if turned else "its rows are sources and destinations.")
            )
        return edges[0], edges[1], _weight(data)
    adj_t = data.get("adj_t")
    if adj_t is None:
        raise DataError("the PyG data has neither edge_index nor adj_t. Set one of them.")
    if hasattr(adj_t, "coo"):  # torch_sparse.SparseTensor
        destination, source, weight = adj_t.coo()
        return array(source), array(destination), None if weight is None else array(weight)
    coo = adj_t.to_sparse_coo().coalesce()
    destination, source = array(coo.indices())
    values = array(coo.values())
    return source, destination, None if (values == 1).all() else values


def _weight(data: Any) -> Any:
    if data.get("edge_weight") is not None:
        return array(data.edge_weight).reshape(-1)
    attr = data.get("edge_attr")
    if attr is None:
        return None
    values = array(attr)
    if values.ndim == 2 and values.shape[1] > 1:
        raise DataError(
            f"the PyG data has edge_attr with {values.shape[1]} columns, but an edge carries one weight. "
            "Set edge_weight to one of them, or remove edge_attr (del data.edge_attr)."
        )
    return values.reshape(-1)


def _features(x: Any) -> Any:
    dense = str(getattr(x, "layout", "")) == "torch.strided"
    return array(x) if dense else sparse_features(x)


def _feature_tensor(torch: Any, graph: Graph) -> Any:
    if not isinstance(graph.features, SparseFeatures):
        return torch.from_numpy(np.array(graph.features, np.float32))
    part = graph.features
    rows = np.repeat(np.arange(part.num_rows), np.diff(part.indptr))
    where = torch.from_numpy(np.stack([rows, part.indices.astype(np.int64)]))
    values = torch.from_numpy(part.values.copy())
    return torch.sparse_coo_tensor(where, values, part.shape, is_coalesced=True, check_invariants=True)
