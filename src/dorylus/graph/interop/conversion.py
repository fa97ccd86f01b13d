"""Shared by the converters: tensors to arrays, and an edge list to a graph with every edge kept."""

from typing import Any

import numpy as np

from dorylus.backends import native
from dorylus.errors import DataError, GraphError, kind_of
from dorylus.graph import validate
from dorylus.graph.arrays import AnyArray
from dorylus.graph.coerce import as_float32, as_integers
from dorylus.graph.features import SparseFeatures, to_float32
from dorylus.graph.graph import MASKS, Graph


def from_edge_arrays(source: Any, destination: Any, num_vertices: int, weight: Any = None, **attributes: Any) -> Graph:
    """The graph with exactly these directed edges, repeats included; undirected if every edge has its reverse."""
    source = as_integers(source, "source")
    destination = as_integers(destination, "destination")
    validate.check_ends(source, destination, num_vertices)
    weight = None if weight is None else np.ascontiguousarray(as_float32(weight, "edge_weight"))
    if weight is not None and weight.shape != source.shape:
        raise GraphError(
            f"edge_weight has shape {list(weight.shape)}, but there are {source.size} edges. Give one per edge."
        )
    source, destination = (ends.astype(np.int32, copy=False) for ends in (source, destination))
    indptr, indices, values = native.csr_build(destination, source, num_vertices, num_vertices, weight)
    directed = not native.csr_is_symmetric(indptr, indices, values=values)
    if values is not None:
        validate.check_weights(indptr, indices, values)
    return Graph(indptr, indices, edge_weight=values, directed=directed, trust="edges", **attributes)


_CONVERTERS = {"torch_geometric": "pyg", "dgl": "dgl", "networkx": "networkx", "scipy": "scipy", "ogb": "ogb"}


def converter_of(value: object) -> str | None:
    """The converter for a value of another library, as ``Graph.from_pyg``; None if there is none."""
    name = _CONVERTERS.get(type(value).__module__.partition(".")[0])
    return None if name is None else f"Graph.from_{name}"


def check_source(name: str, value: object, what: str, *attributes: str) -> None:
    """Refuse a value that ``Graph.from_<name>`` cannot read: it takes ``what``, which has these attributes."""
    if all(hasattr(value, each) for each in attributes):
        return
    other = converter_of(value)
    cure = "give one" if other in (None, f"Graph.from_{name}") else f"use {other}"
    raise DataError(f"Graph.from_{name} takes {what}, and was given {kind_of(value)}: {cure}.")


def array(tensor: Any) -> AnyArray:
    """A torch tensor, on any device and with or without gradient, as an array; anything else through NumPy."""
    return np.asarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor)


def sparse_features(matrix: Any) -> SparseFeatures:
    """A torch sparse tensor (COO or CSR) or a SciPy sparse matrix as sparse features."""
    if hasattr(matrix, "to_sparse_coo"):
        entries = matrix.to_sparse_coo().coalesce()
        rows, columns = array(entries.indices())
        indptr = np.searchsorted(rows, np.arange(matrix.shape[0] + 1))
        return SparseFeatures.from_csr(indptr, columns, array(entries.values()), int(matrix.shape[1]))
    csr = matrix.tocsr()
    return SparseFeatures.from_csr(csr.indptr, csr.indices, csr.data, int(matrix.shape[1]))


def labels(values: AnyArray) -> AnyArray:
    """Labels as a graph stores them: a single column is flattened, and NaN means no label."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 1 and values.dtype.kind == "f":
        whole = np.where(np.isnan(values), -1, values)
        if (whole == whole.astype(np.int64)).all():
            return whole.astype(np.int64)
    return values


def one_split(values: AnyArray, split: int | None, what: str) -> AnyArray:
    """The column ``split`` of a mask that has several."""
    if values.ndim == 1:
        return values
    if split is None or not 0 <= split < values.shape[1]:
        raise GraphError(
            f"{what} holds {values.shape[1]} splits. Choose one with split=0 to split={values.shape[1] - 1}."
        )
    return values[:, split]


def dense_features(graph: Graph) -> AnyArray:
    """The features as a writable dense array: other libraries share its memory."""
    features = graph.features
    dense = features.to_dense() if isinstance(features, SparseFeatures) else to_float32(features)
    return np.require(dense, requirements=["C", "W"])


def split_numbers(graph: Graph) -> dict[str, AnyArray]:
    """The vertex numbers that each mask selects, by the name of the mask."""
    return {name: np.flatnonzero(getattr(graph, name)) for name in MASKS}
