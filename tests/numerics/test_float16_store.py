"""A store of float16 features trains, however they are held, to the numbers of the same features in float32."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limited_runs import GRAPHS, SETTINGS, LimitedCut, all_policies, assert_equal_runs, model, paged_graph, under_limit

import dorylus
from dorylus.graph import SparseFeatures
from dorylus.servers import SpillPolicy

Stores = dict[str, dorylus.Graph]
NOTHING = SpillPolicy(rows=False, gathered=False, published=False)
MODELS = {  # dropout, dropout of the input, and other settings: every way that features are read
    "gathered once": ("gcn", 0.0, None, {}),
    "gathered in every epoch": ("gcn", 0.0, None, {"cache_first_gather": False}),
    "gathered with dropout": ("sage mean", 0.5, 0.5, {}),
    "own rows and the gather": ("sage mean", 0.0, None, {}),
    "a maximum": ("sage max", 0.0, None, {}),
    "read by a dense task": ("gat", 0.0, None, {}),
    "read by a dense task with dropout": ("gat", 0.5, 0.5, {}),
    "read by edges": ("edges sum", 0.0, None, {}),
}


@cache
def rounded(kind: str) -> dorylus.Graph:
    """A graph in memory whose features are float32 that float16 holds exactly."""
    graph = paged_graph(kind)
    features: Any = graph.features
    if isinstance(features, SparseFeatures):
        half = features.values.astype(np.float16)
        features = SparseFeatures(features.indptr, features.indices, half.astype(np.float32), features.num_columns)
    else:
        features = features.astype(np.float16).astype(np.float32)
    made = {name: getattr(graph, name) for name in ("labels", "edge_weight", "train_mask", "val_mask", "test_mask")}
    return dorylus.Graph(
        graph.indptr, graph.indices, features, directed=graph.directed, num_classes=graph.num_classes, **made
    )


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Every graph, opened from a store of float16 features."""
    root = tmp_path_factory.mktemp("half")
    for kind in GRAPHS:
        paged_graph(kind).save(root / kind, feature_dtype="float16")
    return {kind: dorylus.Graph.open(root / kind, verify=True) for kind in GRAPHS}


def trained(graph: dorylus.Graph, case: str, **settings: Any) -> dorylus.Result:
    name, dropout, of_input, more = MODELS[case]
    return dorylus.train(graph, model(name, dropout, of_input), **(SETTINGS | {"intervals": 5} | more | settings))


@cache
def expected(kind: str, case: str, precision: str = "float32") -> dorylus.Result:
    return trained(rounded(kind), case, prune_rows=False, precision=precision)


@pytest.mark.parametrize("case", MODELS)
def test_in_memory_every_bit_is_the_same(case: str, stores: Stores) -> None:
    found, reference = trained(stores["directed"], case), trained(rounded("directed"), case)
    assert found.losses == reference.losses
    assert all(weight.equal(reference.model.state_dict()[name]) for name, weight in found.model.state_dict().items())


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize(
    "policy", [SpillPolicy(), pytest.param(NOTHING, marks=pytest.mark.soak)], ids=["files", "memory"]
)
def test_under_a_limit(case: str, policy: SpillPolicy, stores: Stores, tmp_path: Path) -> None:
    name, dropout, of_input, more = MODELS[case]
    what = model(name, dropout, of_input)
    found = under_limit(stores["directed"], what, tmp_path, LimitedCut(policy=policy), **more)
    assert_equal_runs(found, expected("directed", case))


@pytest.mark.parametrize("case", ["gathered once", "gathered in every epoch", "read by a dense task"])
def test_under_a_limit_without_a_store(case: str, tmp_path: Path) -> None:
    name, dropout, of_input, more = MODELS[case]
    graph = rounded("directed")
    assert isinstance(graph.features, np.ndarray)
    half = replace(graph, features=graph.features.astype(np.float16), trust="everything")
    found = under_limit(half, model(name, dropout, of_input), tmp_path, LimitedCut(blocks=1), **more)
    assert_equal_runs(found, expected("directed", case))


@pytest.mark.parametrize("kind", ["sparse", "weighted", "multilabel"])
@pytest.mark.parametrize("limited", [False, True])
def test_graphs_of_every_kind(kind: str, limited: bool, stores: Stores, tmp_path: Path) -> None:
    reference = expected(kind, "gathered with dropout")
    if limited:
        found = under_limit(stores[kind], model("sage mean", 0.5, 0.5), tmp_path, LimitedCut())
    else:
        found = trained(stores[kind], "gathered with dropout", prune_rows=False)
    assert_equal_runs(found, reference)


@pytest.mark.parametrize("case", ["gathered once", "gathered in every epoch", "read by a dense task"])
def test_over_two_servers(case: str, stores: Stores) -> None:
    found = trained(stores["undirected"], case, servers=2, intervals=3)
    assert_equal_runs(found, trained(rounded("undirected"), case, servers=2, intervals=3))


@pytest.mark.parametrize("case", ["gathered once", "gathered in every epoch"])
@pytest.mark.parametrize("policy", all_policies()[::7], ids=["memory", "files"])
def test_with_gathered_rows_in_bf16(case: str, policy: SpillPolicy, stores: Stores, tmp_path: Path) -> None:
    name, dropout, of_input, more = MODELS[case]
    what = model(name, dropout, of_input)
    found = under_limit(stores["directed"], what, tmp_path, LimitedCut(policy=policy), precision="bf16", **more)
    assert_equal_runs(found, expected("directed", case, "bf16"), within=1e-4)
    assert found.losses != expected("directed", case).losses, "nothing was rounded"


@pytest.mark.usefixtures("nothing_fits")
@pytest.mark.parametrize("name", ["gcn", "sage mean", "gat"])
def test_predictions_under_a_limit(name: str, stores: Stores, tmp_path: Path) -> None:
    program = model(name, 0.0).build(40, 19, seed=2)
    found = dorylus.predict(stores["directed"], program, memory="1GiB", scratch_dir=tmp_path)
    np.testing.assert_allclose(found, dorylus.predict(rounded("directed"), program), rtol=1e-5, atol=1e-6)
