"""NetworkX: ``Graph`` and ``DiGraph`` to Graph and back; vertex i is the i-th node."""

from typing import Any

import numpy as np

from dorylus.errors import GraphError
from dorylus.extras import optional
from dorylus.graph.arrays import AnyArray
from dorylus.graph.graph import MASKS, Graph
from dorylus.graph.interop.conversion import check_source, dense_features

INSTALL = 'pip install "dorylus[networkx]"'


def from_networkx(
    graph: Any, *, features: str | None = None, labels: str | None = None, weight: str | None = None
) -> Graph:
    """The graph of a NetworkX graph; ``features``, ``labels`` and ``weight`` name its node and edge attributes.

    The default names are x, y and weight, and may be missing; a name that is given must exist. An attribute that only
    some nodes or edges have is refused. Masks are the node attributes train_mask, val_mask and test_mask. Parallel
    edges are stored once.
    """
    check_source("networkx", graph, "a Graph or DiGraph of NetworkX", "nodes", "edges", "is_directed")
    number = {node: i for i, node in enumerate(graph.nodes)}
    ends = np.array([(number[u], number[v]) for u, v in graph.edges()], dtype=np.int64).reshape(-1, 2)
    nodes = [(node, values) for node, values in graph.nodes(data=True)]
    edges = [((u, v), values) for u, v, values in graph.edges(data=True)]
    columns = {name: _column(nodes, None, name, "node") for name in MASKS}
    columns |= {"features": _column(nodes, features, "x", "node"), "labels": _column(nodes, labels, "y", "node")}
    return Graph.from_edges(
        ends[:, 0],
        ends[:, 1],
        len(number),
        undirected=not graph.is_directed(),
        edge_weight=_column(edges, weight, "weight", "edge"),
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


def _column(items: list[tuple[Any, dict[str, Any]]], given: str | None, default: str, what: str) -> AnyArray | None:
    """The attribute ``given``, or else ``default``, of every item; None if no item has the default one."""
    key = default if given is None else given
    if not any(key in values for _, values in items):
        if given is not None and items:
            known = ", ".join(sorted({str(name) for _, values in items for name in values})) or "none"
            raise GraphError(
                f"no {what} has the attribute {key!r}; there are: {known}. Give one of those, or leave it out."
            )
        return None
    for item, values in items:
        if key not in values:
            raise GraphError(
                f"{what} {item!r} has no attribute {key!r}, though others do. Give it to every {what} or to none."
            )
    return np.array([values[key] for _, values in items])
