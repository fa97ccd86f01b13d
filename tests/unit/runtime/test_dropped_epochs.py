"""An epoch that is dropped because the process has to end leaves the state of the epoch before."""

import threading

import pytest
import torch

import dorylus
from dorylus.errors import TrainingError
from dorylus.pools import ThreadsPool
from dorylus.runtime import LocalRuntime
from dorylus.runtime.runtime import EpochDroppedError
from in_process_servers import remote_runtime

CUT = {"servers": 2, "intervals": 2, "parameter_servers": 2, "threads": 1}


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=150, num_classes=3, num_features=6, average_degree=5, seed=0)


class Stalled(ThreadsPool):
    """Never answers one kind of task of one epoch, and records when it is called."""

    def __init__(self, kind, epoch):
        super().__init__()
        self._which = kind, epoch
        self.stalled = threading.Event()

    def submit(self, call, done, failed):
        if (call.task.kind.name, call.task.epoch) == self._which:
            self.stalled.set()
        else:
            super().submit(call, done, failed)


def dropping(cluster, pool):
    """Another thread drops the running epoch of the cluster as soon as the pool is stalled."""

    def drop():
        assert pool.stalled.wait(60)
        cluster.drop_epoch()

    thread = threading.Thread(target=drop)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", [LocalRuntime, remote_runtime])
@pytest.mark.parametrize("task", ["APPLY_VERTEX", "GRAD_APPLY_VERTEX"])
def test_the_state_is_that_of_the_last_finished_epoch(graph, make_cluster, kind, task):
    whole = make_cluster(graph, dorylus.gcn(), **CUT)
    expected = [whole.train_epoch().loss for _ in range(2)], whole.state()
    pool = Stalled(task, 2)
    cluster = make_cluster(graph, dorylus.gcn(), kind=kind, pool=pool, **CUT)
    losses = [cluster.train_epoch().loss for _ in range(2)]
    thread = dropping(cluster, pool)
    with pytest.raises(EpochDroppedError):
        cluster.train_epoch()
    thread.join()
    state = cluster.state()
    assert losses == expected[0]
    assert all(torch.equal(weight, expected[1].weights[name]) for name, weight in state.weights.items())
    for name, its in state.optimizer["state"].items():
        assert torch.equal(its["exp_avg"], expected[1].optimizer["state"][name]["exp_avg"])


def test_an_epoch_whose_update_is_made_is_not_given_up(graph, make_cluster):
    cluster = make_cluster(graph, dorylus.gcn(), **CUT)
    parameters, step = cluster._parameters, cluster._parameters._step

    def step_and_drop(update):
        step(update)
        thread = threading.Thread(target=cluster.drop_epoch)
        thread.start()
        dropped.append(thread)

    dropped = []
    parameters._step = step_and_drop
    assert cluster.train_epoch().loss > 0
    dropped[0].join()
    assert parameters.version == 1


def test_no_update_is_made_after_an_epoch_was_given_up(graph, make_cluster):
    """A thread may be about to make it: the state that is saved must stay what it is."""
    cluster = make_cluster(graph, dorylus.gcn(), **CUT)
    parameters = cluster._parameters
    cluster.drop_epoch()
    with pytest.raises(TrainingError, match="weights are not updated any more"):
        parameters.finish(0, 0)
    assert parameters.version == 0
