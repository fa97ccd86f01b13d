"""Training under a memory limit gives the numbers of training in memory, whatever is paged and however it is cut."""

import errno
import gc
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limited_runs import (
    EDGE_LAYERS,
    GRAPHS,
    RECIPES,
    SETTINGS,
    LimitedCut,
    all_policies,
    assert_equal_runs,
    in_memory,
    limited,
    model,
    paged_graph,
    under_limit,
)

import dorylus
from dorylus.errors import DataError
from dorylus.servers import SpillPolicy
from draws import draws

Stores = dict[str, dorylus.Graph]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Every graph, opened from its store."""
    root = tmp_path_factory.mktemp("stores")
    for kind in GRAPHS:
        paged_graph(kind).save(root / kind)
    return {kind: dorylus.Graph.open(root / kind) for kind in GRAPHS}


@pytest.mark.parametrize("kind", [pytest.param("undirected", marks=pytest.mark.soak), "weighted"])
@pytest.mark.parametrize("name", RECIPES)
def test_every_model_trains_to_the_same_numbers(name: str, kind: str, stores: Stores, tmp_path: Path) -> None:
    found = under_limit(stores[kind], model(name, 0.5), tmp_path, LimitedCut())
    assert_equal_runs(found, in_memory(kind, name, 0.5))


@pytest.mark.parametrize("kind", ["directed", "sparse", "multilabel"])
@pytest.mark.parametrize("name", ["gcn", "sage mean", "sage max", "gat"])
def test_so_do_graphs_of_every_kind(name: str, kind: str, stores: Stores, tmp_path: Path) -> None:
    found = under_limit(stores[kind], model(name, 0.0), tmp_path, LimitedCut(blocks=3))
    assert_equal_runs(found, in_memory(kind, name, 0.0))


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_dropout_of_the_features_does_not_see_blocks_of_columns(blocks: int, stores: Stores, tmp_path: Path) -> None:
    found = under_limit(stores["directed"], model("sage max", 0.0, 0.4), tmp_path, LimitedCut(blocks=blocks))
    assert_equal_runs(found, in_memory("directed", "sage max", 0.0, 0.4))


def _letters(policy: SpillPolicy) -> str:
    """m for what stays in memory, f for files."""
    return "".join("mf"[paged] for paged in vars(policy).values())


NOTHING, *SOME, ALL = all_policies()
ALL_OR_NOTHING = [NOTHING, *(pytest.param(each, marks=pytest.mark.soak) for each in SOME), ALL]


@pytest.mark.parametrize("policy", all_policies(), ids=_letters)
def test_whatever_lies_in_files(policy: SpillPolicy, stores: Stores, tmp_path: Path) -> None:
    found = under_limit(stores["undirected"], model("sage max", 0.5), tmp_path, LimitedCut(policy=policy))
    assert_equal_runs(found, in_memory("undirected", "sage max", 0.5))


@pytest.mark.parametrize("policy", ALL_OR_NOTHING, ids=_letters)
@pytest.mark.parametrize("name", EDGE_LAYERS)
def test_layers_of_a_user_that_work_on_edges(name: str, policy: SpillPolicy, stores: Stores, tmp_path: Path) -> None:
    found = under_limit(stores["weighted"], model(name, 0.5), tmp_path, LimitedCut(policy=policy))
    assert_equal_runs(found, in_memory("weighted", name, 0.5))


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_scores_of_many_heads_fill_pages_of_their_own(kind: str, stores: Stores, tmp_path: Path) -> None:
    found = under_limit(stores[kind], model("gat many heads", 0.0), tmp_path, LimitedCut(intervals=2))
    assert_equal_runs(found, in_memory(kind, "gat many heads", 0.0))


@pytest.mark.parametrize("name", ["gcn", "sage max", "gat"])
def test_bf16_is_rounded_alike(name: str, stores: Stores, tmp_path: Path) -> None:
    exact = in_memory("directed", name, 0.5)
    found = under_limit(stores["directed"], model(name, 0.5), tmp_path, LimitedCut(), precision="bf16")
    assert_equal_runs(found, in_memory("directed", name, 0.5, None, "bf16"), within=2e-3)
    assert found.losses != exact.losses, "nothing was rounded"


cuts = st.builds(
    LimitedCut,
    blocks=st.integers(1, 3),
    static_blocks=st.integers(1, 3),
    intervals=st.integers(2, 9),
    policy=st.sampled_from(all_policies()),
)


@draws(6)
@given(
    name=st.sampled_from(sorted((*RECIPES, *EDGE_LAYERS))),
    kind=st.sampled_from(GRAPHS[:4]),
    dropout=st.sampled_from([0.0, 0.5]),
    cut=cuts,
    stored=st.booleans(),
    threads=st.integers(1, 3),
)
def test_whatever_is_drawn(
    name: str, kind: str, dropout: float, cut: LimitedCut, stored: bool, threads: int, stores: Stores
) -> None:
    graph = stores[kind] if stored else paged_graph(kind)
    found = under_limit(graph, model(name, dropout), _folder_of(stores), cut, threads=threads)
    assert_equal_runs(found, in_memory(kind, name, dropout))


@pytest.mark.parametrize("name", ["gcn", "sage max"])
def test_one_interval_is_a_cut_too(name: str, stores: Stores, tmp_path: Path) -> None:
    found = under_limit(stores["undirected"], model(name, 0.5), tmp_path, LimitedCut(intervals=1))
    assert_equal_runs(found, in_memory("undirected", name, 0.5))


def _folder_of(stores: Stores) -> Path:
    return Path(str(stores["directed"].store)).parent


def test_a_stopped_run_resumes_to_the_same_numbers(stores: Stores, tmp_path: Path) -> None:
    settings = SETTINGS | {"memory": "1GiB", "run_dir": str(tmp_path / "run"), "checkpoint_every": 1}
    with limited(tmp_path, LimitedCut()):
        with dorylus.Trainer(stores["weighted"], model("sage mean", 0.5), **settings) as trainer:
            trainer.run(epochs=2)
        resumed = dorylus.resume(tmp_path / "run", stores["weighted"], model("sage mean", 0.5))
    assert len(resumed.losses) == SETTINGS["epochs"]
    assert_equal_runs(resumed, in_memory("weighted", "sage mean", 0.5))


def test_neither_files_nor_descriptors_are_left(stores: Stores, tmp_path: Path) -> None:
    def open_here() -> list[str]:
        return [link for link in map(_target, Path("/proc/self/fd").iterdir()) if link.startswith(str(tmp_path))]

    with limited(tmp_path, LimitedCut()):
        trainer = _trainer(stores["weighted"], "gcn")
        trainer.run(epochs=1)
        assert open_here(), "nothing was paged"
        trainer.close()
    del trainer
    gc.collect()
    assert not open_here()
    assert not list(tmp_path.iterdir())


def _target(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except OSError:  # the descriptor of the listing itself
        return ""


def no_space(*arguments: object) -> int:
    """Fail as a write to a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_cluster_that_cannot_be_made_leaves_no_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwritev", no_space)  # from the gather that is made once on
    with pytest.raises(DataError, match="No space left on device"):
        under_limit(paged_graph("directed"), model("gcn", 0.5), tmp_path, LimitedCut())
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("dorylus-")]


@pytest.mark.parametrize("name", ["gcn", "sage max"])
def test_a_disk_that_fills_up_ends_the_run_with_the_cure(
    name: str, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with limited(tmp_path, LimitedCut()), _trainer(stores["directed"], name) as trainer:
        trainer.run(epochs=1)
        monkeypatch.setattr(os, "pwritev", no_space)
        with pytest.raises(
            DataError, match=r"cannot write to a scratch file in .*: No space left on device\. Make room"
        ):
            trainer.run(epochs=2)


def _trainer(graph: dorylus.Graph, name: str) -> dorylus.Trainer:
    return dorylus.Trainer(graph, model(name, 0.5), memory="1GiB", **(SETTINGS | {"deadline_s": 5}))
