"""A model on another graph than its own: the numbers of a whole-graph forward pass there, columns matched by name."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import csv, parquet

import dorylus
from dorylus.errors import DataError, GraphError
from dorylus.graph import Graph, SparseFeatures
from dorylus.inference import predict_from
from dorylus.saga import reference

NAMES = ("a", "b", "c", "d", "e", "f")
CLASSES = ("art", "bio", "chem")


def graph_of(num_vertices: int, seed: int = 0, **options: Any) -> Graph:
    made = dorylus.communities(
        num_vertices=num_vertices, num_classes=3, num_features=6, average_degree=5, seed=seed, **options
    )
    return replace(made, class_names=CLASSES, feature_names=NAMES, trust="everything")


def unlabelled(graph: Graph, **changes: Any) -> Graph:
    """The same graph as one knows it that nobody has labelled."""
    fields = {"features": graph.features, "feature_names": graph.feature_names, **changes}
    return Graph(graph.indptr, graph.indices, directed=graph.directed, **fields)


def run_of(folder: Any, graph: Graph, model: Any, **settings: Any) -> Any:
    return dorylus.train(graph, model, epochs=2, threads=1, run_dir=folder, **settings)


OWN, OTHER = graph_of(150), unlabelled(graph_of(230, seed=5, homophily=0.3))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return folder, run_of(folder, OWN, dorylus.gcn(hidden=5, num_layers=3))


@pytest.mark.usefixtures("nothing_fits")
@pytest.mark.parametrize("name", ["gcn", "gat", "sage", "gin"])
def test_every_layer_is_that_of_a_plain_forward_pass_over_the_other_graph(name: str, tmp_path: Any) -> None:
    result = run_of(tmp_path / "run", OWN, getattr(dorylus, name)(hidden=8, num_layers=3))
    OTHER.save(tmp_path / "store")
    stored = Graph.open(tmp_path / "store")
    layers = [result.model.layer(index) for index in range(3)]
    for what, layer in (("embeddings", 0), ("embeddings", 1), ("logits", 2)):
        with torch.no_grad():
            expected = reference.forward(dorylus.Program(layers[: layer + 1]), OTHER).numpy()
        for found in (
            result.predict(what, layer=layer, graph=OTHER),
            predict_from(tmp_path / "run", what, layer, graph=stored),
            predict_from(tmp_path / "run", what, layer, graph=stored, memory="1GiB", scratch_dir=tmp_path),
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_probabilities_are_the_softmax_and_those_of_labels_the_sigmoid(run: Any, tmp_path: Any) -> None:
    logits = torch.from_numpy(predict_from(run[0], graph=OTHER))
    found = predict_from(run[0], "probabilities", graph=OTHER)
    np.testing.assert_allclose(found, torch.softmax(logits, dim=1).numpy(), rtol=1e-5, atol=1e-7)
    result = run_of(tmp_path / "run", graph_of(150, multilabel=True), dorylus.gcn(hidden=5))
    logits = torch.from_numpy(predict_from(tmp_path / "run", graph=OTHER))
    found = predict_from(tmp_path / "run", "probabilities", graph=OTHER)
    np.testing.assert_allclose(found, torch.sigmoid(logits).numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(predict_from(tmp_path / "run", "classes", graph=OTHER), (logits > 0).numpy())
    assert result.predict_table(graph=OTHER).column_names == ["id", *CLASSES]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_table_of_probabilities_has_a_column_a_class(run: Any, suffix: str, tmp_path: Any) -> None:
    path = tmp_path / f"x.{suffix}"
    ids = np.arange(OTHER.num_vertices) * 3
    predict_from(run[0], "probabilities", graph=replace(OTHER, ids=ids, trust="everything"), out=path)
    table = parquet.read_table(path) if suffix == "parquet" else csv.read_csv(path)
    assert table.column_names == ["id", *CLASSES]
    assert table["id"].to_pylist() == ids.tolist()
    columns = np.stack([table[name].to_numpy() for name in CLASSES], axis=1)
    np.testing.assert_allclose(columns, predict_from(run[0], "probabilities", graph=OTHER), rtol=1e-6)


def test_classes_are_named_as_in_training(run: Any) -> None:
    table = run[1].predict_table(graph=unlabelled(OTHER, class_names=("x", "y"), num_classes=2))
    assert [CLASSES.index(name) for name in table["class"].to_pylist()] == run[1].predict(
        "classes", graph=OTHER
    ).tolist()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_columns_in_another_order_are_matched_by_name(run: Any, sparse: bool) -> None:
    features = SparseFeatures.from_dense(OTHER.features) if sparse else OTHER.features
    shuffled = unlabelled(OTHER, features=features).with_features(["f", "a", "e", "b", "d", "c"])
    columns = shuffled.features.to_dense() if sparse else shuffled.features
    np.testing.assert_array_equal(columns[:, 1], OTHER.features[:, 0])
    np.testing.assert_allclose(predict_from(run[0], graph=shuffled), predict_from(run[0], graph=OTHER), rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_category_that_does_not_occur_is_zero(sparse: bool, tmp_path: Any) -> None:
    names = ("a", "city=Bern", "city=Oslo", "city=Rome", "e", "f")
    run_of(tmp_path / "run", replace(OWN, feature_names=names, trust="everything"), dorylus.gcn(hidden=5))
    features = OTHER.features.copy()
    features[:, 1] = 0
    expected = predict_from(tmp_path / "run", graph=unlabelled(OTHER, features=features, feature_names=names))
    kept = [5, 2, 3, 0, 4]
    part = np.ascontiguousarray(features[:, kept])
    lacking = unlabelled(
        OTHER,
        features=SparseFeatures.from_dense(part) if sparse else part,
        feature_names=[names[column] for column in kept],
    )
    np.testing.assert_allclose(predict_from(tmp_path / "run", graph=lacking), expected, rtol=1e-5, atol=1e-6)
    without = unlabelled(OTHER, features=features[:, [0, 4, 5]], feature_names=("a", "e", "f"))
    with pytest.raises(GraphError, match=r"lacks the features 'city=Bern', 'city=Oslo', 'city=Rome', which"):
        predict_from(tmp_path / "run", graph=without)


def test_without_names_columns_are_matched_by_their_place(run: Any) -> None:
    found = predict_from(run[0], graph=unlabelled(OTHER, feature_names=None))
    np.testing.assert_array_equal(found, predict_from(run[0], graph=OTHER))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feature_names": ("a", "b", "c", "d", "e", "x")}, r"lacks the feature 'f', which the model was trained on"),
        ({"feature_names": tuple("uvwxyz")}, r"lacks the features 'a', 'b', 'c' and 3 more, which"),
        ({"feature_names": (*NAMES, "g")}, r"has the feature 'g', which the model was not trained on"),
        ({"feature_names": (*reversed(NAMES), "a")}, r"several of one name"),
        ({"feature_names": None}, r"has 7 features, but the model was trained on 6"),
    ],
)
def test_other_features_are_refused(run: Any, changes: dict[str, Any], message: str) -> None:
    width = 6 if changes["feature_names"] and len(changes["feature_names"]) == 6 else 7
    features = np.zeros((OTHER.num_vertices, width), np.float32)
    with pytest.raises(GraphError, match=message):
        predict_from(run[0], graph=unlabelled(OTHER, features=features, **changes))


def test_features_are_row_normalised_where_those_of_the_run_were(tmp_path: Any) -> None:
    own, other = (unlabelled(each, features=np.abs(each.features) + 1) for each in (OWN, OTHER))
    own = replace(own.row_normalised(), labels=OWN.labels, train_mask=OWN.train_mask, num_classes=3)
    run_of(tmp_path / "run", own, dorylus.gcn(hidden=5))
    other.row_normalised().save(tmp_path / "store")
    expected = predict_from(tmp_path / "run", graph=other.row_normalised())
    for graph in (other, Graph.open(tmp_path / "store")):
        np.testing.assert_array_equal(predict_from(tmp_path / "run", graph=graph), expected)
    assert not replace(other.row_normalised(), features=other.features).is_row_normalised
    with pytest.raises(GraphError, match=r"have to be row-normalised like the run's, which takes .* are the limit"):
        predict_from(tmp_path / "run", graph=other, memory=4000)


def test_a_damaged_file_of_facts_is_refused(run: Any, tmp_path: Any) -> None:
    run_of(tmp_path / "run", OWN, dorylus.gcn(hidden=4))
    facts = tmp_path / "run" / "graph.json"
    facts.write_text(facts.read_text().replace('"num_features": 6', '"num_features": "6"'))
    with pytest.raises(DataError, match=r"graph\.json is damaged \(num_features is a str\)"):
        predict_from(tmp_path / "run", graph=OTHER)
