"""NetworkX: ``Graph`` and ``DiGraph`` to Graph and back; vertex i is the i-th node."""

from typing import Any

import numpy as np

from dorylus.errors import GraphError
from dorylus.graph.arrays import AnyArray
from dorylus.graph.graph import MASKS, Graph
from dorylus.graph.interop.arrays import dense_features
from dorylus.graph.interop.packages import optional

INSTALL = "pip install networkx"


def from_networkx(graph: Any, *, features: str = "x", labels: str = "y", weight: str = "weight") -> Graph:
    """The graph of a NetworkX graph; ``features``, ``labels`` and ``weight`` name its node and edge attributes.

    An attribute that no node or edge has is left out; one that only some have is refused. Masks are the node
    attributes train_mask, val_mask and test_mask. Parallel edges are stored once.
    """
    number = {node: i for i, node in enumerate(graph.nodes)}
    ends = np.array([(number[u], number[v]) for u, v in graph.edges()], dtype=np.int64).reshape(-1, 2)
    nodes = [(node, values) for node, values in graph.nodes(data=True)]
    edges = [((u, v), values) for u, v, values in graph.edges(data=True)]
    attributes = {"features": features, "labels": labels, **{name: name for name in MASKS}}
    columns = {field: _column(nodes, key, "node") for field, key in attributes.items()}
    return Graph.from_edges(
        ends[:, 0],
        ends[:, 1],
        len(number),
        undirected=not graph.is_directed(),
        edge_weight=_column(edges, weight, "edge"),
        name=graph.name or "graph",
        **columns,
    )


def to_networkx(graph: Graph) -> Any:
    """A NetworkX graph of nodes 0 to N - 1 with attributes x, y, the masks and, for weighted graphs, edge weights."""
    nx = optional("networkx", INSTALL)
    result = nx.DiGraph(name=graph.name) if graph.directed else nx.Graph(name=graph.name)
    result.add_nodes_from(range(graph.num_vertices))
    source, destination = (ends.tolist() for ends in graph.edge_list())
    if graph.edge_weight is None:
        result.add_edges_from(zip(source, destination, strict=True))
    else:
        result.add_weighted_edges_from(zip(source, destination, graph.edge_weight.tolist(), strict=True))
    for key, column in _node_columns(graph).items():
        nx.set_node_attributes(result, dict(enumerate(column)), key)
    return result


def _node_columns(graph: Graph) -> dict[str, Any]:
    columns: dict[str, Any] = {name: getattr(graph, name).tolist() for name in MASKS}
    if graph.num_features:
        columns["x"] = dense_features(graph)
    if graph.labels is not None:
        columns["y"] = graph.labels.tolist() if graph.labels.ndim == 1 else graph.labels
    return columns


def _column(items: list[tuple[Any, dict[str, Any]]], key: str, what: str) -> AnyArray | None:
    """The attribute ``key`` of every item, None when nobody has it."""
    having = sum(key in values for _, values in items)
    if having == 0:
        return None
    for item, values in items:
        if key not in values:
            raise GraphError(
                f"{what} {item!r} has no attribute {key!r}, though others do. Give it to every {what} or to none."
            )
    return np.array([values[key] for _, values in items])
