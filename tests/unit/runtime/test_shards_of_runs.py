"""The shards that servers in processes of their own open: one folder a cut, shared by the runs of that cut."""

import threading
from types import SimpleNamespace

import pytest

import dorylus
import dorylus.graph.atomic_folder as atomic_folder
from dorylus.config import RunConfig
from dorylus.partition import make_partitioning, open_shards, shard_store
from dorylus.training.placement import _sharded

SOON_S = 30.0


@pytest.fixture
def graph(tmp_path):
    made = dorylus.communities(num_vertices=60, num_classes=3, num_features=4, average_degree=4, seed=0)
    made.save(tmp_path / "graph")
    return dorylus.Graph.open(tmp_path / "graph")


def shards_of_a_run(graph, servers, method="hash"):
    """The folder of the shards of a run with such a partition, after they were written."""
    job = SimpleNamespace(
        cut=SimpleNamespace(parts=make_partitioning(graph, servers, method).parts, num_servers=servers)
    )
    return _sharded(job, graph, graph.store, RunConfig.of(servers=servers, partition=method))


def test_a_run_that_starts_while_another_writes_the_same_shards_does_not_replace_them(graph, tmp_path, monkeypatch):
    seen, opened = threading.Event(), []  # ``seen``: the second has opened its shards, or waits for the lock
    second = threading.Thread(target=lambda: (opened.append(open_shards(shards_of_a_run(graph, 2))), seen.set()))
    write, wait_for = shard_store.write_shards, atomic_folder._wait_for

    def waiting(lock):
        if threading.current_thread() is second:
            seen.set()
        return wait_for(lock)

    def writing(*arguments):
        write(*arguments)
        if threading.current_thread() is not second:
            second.start()
            assert seen.wait(SOON_S)

    monkeypatch.setattr(atomic_folder, "_wait_for", waiting)
    monkeypatch.setattr(shard_store, "write_shards", writing)
    opened.append(open_shards(shards_of_a_run(graph, 2)))
    second.join(SOON_S)
    for each in opened:
        each.shard(1)  # refused where the files are not those that were opened
    assert len(list(tmp_path.glob("graph.shards-*"))) == 1


def test_a_run_with_another_cut_leaves_the_shards_of_the_first_alone(graph, tmp_path):
    first = open_shards(shards_of_a_run(graph, 2))
    others = {shards_of_a_run(graph, 3), shards_of_a_run(graph, 2, "range")}
    first.shard(1)
    first.check(graph)
    assert len(others | {str(first.folder)}) == 3
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        ["graph", *(path.rsplit("/", 1)[1] for path in {*others, str(first.folder)})]
    )
