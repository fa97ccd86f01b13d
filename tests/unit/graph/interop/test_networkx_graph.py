"""NetworkX graphs to Graph and back."""

from typing import Any

import numpy as np
import pytest

from dorylus.errors import GraphError
from dorylus.graph import Graph, communities

nx: Any = pytest.importorskip("networkx")


def test_a_graph_survives_the_round_trip() -> None:
    graph = communities(60, 3, 4, average_degree=4)
    back = Graph.from_networkx(graph.to_networkx())
    assert (back.name, back.directed) == ("communities", False)
    for name in ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask"):
        assert np.array_equal(getattr(back, name), getattr(graph, name)), name


def test_a_directed_weighted_graph_survives_the_round_trip() -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 2], undirected=False, edge_weight=[0.5, 2.0, -1.0])
    theirs = graph.to_networkx()
    assert isinstance(theirs, nx.DiGraph)
    assert theirs.edges[1, 2]["weight"] == 2.0
    back = Graph.from_networkx(theirs)
    assert back.directed
    assert np.array_equal(back.indices, graph.indices)
    assert back.edge_weight is not None
    assert back.edge_weight.tolist() == [0.5, 2.0, -1.0]


def test_networkx_sees_the_graph_it_knows() -> None:
    back = Graph.from_networkx(nx.karate_club_graph())
    assert (back.num_vertices, back.num_edges) == (34, 2 * 78)
    assert nx.is_isomorphic(back.to_networkx(), nx.karate_club_graph())


def test_nodes_of_any_name_are_numbered_in_their_order() -> None:
    theirs = nx.Graph([("b", "a"), ("a", "c")])
    assert Graph.from_networkx(theirs).indices.tolist() == [1, 0, 2, 1]


def test_attributes_may_have_other_names() -> None:
    theirs = nx.path_graph(3)
    nx.set_node_attributes(theirs, {i: [i, 1.0] for i in range(3)}, "vectors")
    nx.set_node_attributes(theirs, {0: 0, 1: 1, 2: 0}, "club")
    graph = Graph.from_networkx(theirs, features="vectors", labels="club")
    assert np.asarray(graph.features).tolist() == [[0, 1], [1, 1], [2, 1]]
    assert graph.num_classes == 2


def test_an_attribute_only_some_nodes_have_is_refused() -> None:
    theirs = nx.path_graph(3)
    theirs.nodes[0]["y"] = 1
    with pytest.raises(GraphError, match="node 1 has no attribute 'y'"):
        Graph.from_networkx(theirs)


@pytest.mark.parametrize(("name", "what"), [("features", "node"), ("labels", "node"), ("weight", "edge")])
def test_a_name_that_is_given_must_be_there(name: str, what: str) -> None:
    theirs = nx.path_graph(3)
    nx.set_node_attributes(theirs, 1, "club")
    nx.set_edge_attributes(theirs, 1.0, "km")
    there = "club" if what == "node" else "km"
    with pytest.raises(GraphError, match=f"no {what} has the attribute 'clubs'; there are: {there}"):
        Graph.from_networkx(theirs, **{name: "clubs"})


def test_a_graph_without_edges_has_no_weights_to_miss() -> None:
    assert Graph.from_networkx(nx.empty_graph(4), weight="km").edge_weight is None


def test_vertices_without_edges_are_kept() -> None:
    assert Graph.from_networkx(nx.empty_graph(4)).num_vertices == 4


def test_a_multilabel_graph_survives_the_round_trip() -> None:
    graph = communities(60, 3, 4, average_degree=4, multilabel=True)
    back = Graph.from_networkx(graph.to_networkx())
    assert back.multilabel
    assert back.labels is not None
    assert graph.labels is not None
    assert np.array_equal(back.labels, graph.labels)
