"""The runtime of servers in other processes, without the processes: how it recovers servers that die."""

import math
import threading
from functools import partial

import pytest
import torch

import dorylus
from dorylus.errors import DivergedError
from dorylus.pools import ThreadsPool
from dorylus.runtime import LocalRuntime, ServersLostError, remote, remote_weights
from in_process_servers import remote_runtime

CUT = {"servers": 3, "intervals": 2, "parameter_servers": 2, "threads": 1}
EPOCHS = 6


@pytest.fixture(autouse=True)
def lost_servers_are_noticed_soon(monkeypatch):
    monkeypatch.setattr(remote, "BACK_OFF_S", 0.1)
    monkeypatch.setattr(remote_weights, "CONNECT_S", 1.0)


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=150, num_classes=3, num_features=6, average_degree=5, seed=0)


def model():
    return dorylus.gcn(dropout=0.5)


@pytest.fixture
def fault_free(graph, make_cluster):
    cluster = make_cluster(graph, model(), **CUT)
    return [cluster.train_epoch().loss for _ in range(EPOCHS)], cluster.state().weights


def assert_same(cluster, losses, fault_free):
    expected, weights = fault_free
    assert losses == expected
    found = cluster.state().weights
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)


@pytest.mark.parametrize("kind", ["_graphs", "_parameters"])
@pytest.mark.parametrize(
    ("number", "after"),
    [
        (0, 0),
        (1, 3),
        pytest.param(1, 0, marks=pytest.mark.soak),
        pytest.param(0, 3, marks=pytest.mark.soak),
    ],
)
def test_a_server_that_dies_between_epochs_leaves_the_run_as_it_was(
    graph, make_cluster, fault_free, kind, number, after
):
    cluster = make_cluster(graph, model(), kind=remote_runtime, **CUT)
    losses = []
    for epoch in range(EPOCHS):
        if epoch == after:
            getattr(cluster, kind).kill(number)
        losses.append(cluster.train_epoch().loss)
    assert_same(cluster, losses, fault_free)


class KillsOnce:
    """A pool that has a server killed in the middle of an epoch, by another thread."""

    def __init__(self, at_call):
        self._left, self.kill = at_call, lambda: None
        self._inner, self._lock = ThreadsPool(), threading.Lock()

    def submit(self, call, done, failed):
        with self._lock:
            self._left -= 1
            now = self._left == 0
        if now:
            threading.Thread(target=self.kill).start()
        self._inner.submit(call, done, failed)

    def cancel(self, calls):
        self._inner.cancel(calls)

    def close(self):
        self._inner.close()


@pytest.mark.parametrize("kind", ["_graphs", "_parameters"])
@pytest.mark.parametrize("at_call", [1, 17, pytest.param(40, marks=pytest.mark.soak)])
def test_a_server_that_dies_in_the_middle_of_an_epoch_leaves_the_run_as_it_was(
    graph, make_cluster, fault_free, kind, at_call
):
    pool = KillsOnce(at_call)
    cluster = make_cluster(graph, model(), kind=remote_runtime, pool=pool, **CUT)
    pool.kill = lambda: getattr(cluster, kind).kill(1)
    assert_same(cluster, [cluster.train_epoch().loss for _ in range(EPOCHS)], fault_free)


def test_states_kept_less_often_only_mean_that_more_epochs_are_trained_again(graph, make_cluster, fault_free):
    def rarely(job, pool):
        cluster = remote_runtime(job, pool)
        cluster._keep_every = 4
        return cluster

    cluster = make_cluster(graph, model(), kind=rarely, **CUT)
    losses = [cluster.train_epoch().loss for _ in range(3)]
    cluster._graphs.kill(2)
    losses += [cluster.train_epoch().loss for _ in range(EPOCHS - 3)]
    assert_same(cluster, losses, fault_free)


def test_epochs_that_were_made_synchronous_stay_so_after_a_fault(graph, make_cluster):
    ahead = {"mode": "async", "staleness": 2, "servers": 2, "intervals": 2, "threads": 1}
    cluster = make_cluster(graph, model(), kind=remote_runtime, **ahead)
    for epoch in range(3):
        cluster.train_epoch(min(epoch + 2, 2))
    assert set(cluster.train_epoch(exact_from=3).ages) == {0}
    cluster._graphs.kill(1)
    assert [set(cluster.train_epoch(exact_from=3).ages) for _ in range(2)] == [{0}, {0}]


def test_outputs_after_a_fault_are_those_of_the_epoch_reached(graph, make_cluster):
    near, far = (make_cluster(graph, model(), kind=kind, **CUT) for kind in (LocalRuntime, remote_runtime))
    for _ in range(2):
        near.train_epoch()
        far.train_epoch()
    far._graphs.kill(0)
    assert (near.outputs().whole() == far.outputs().whole()).all()


def test_a_server_that_never_comes_back_ends_the_run_with_the_reason(graph, make_cluster):
    cluster = make_cluster(graph, model(), kind=remote_runtime, **CUT)
    cluster.train_epoch()
    cluster._graphs.revive = lambda: None
    cluster._graphs.kill(1)
    with pytest.raises(ServersLostError, match="it was killed"):
        cluster.train_epoch()


def test_an_asynchronous_run_continues_after_a_fault(graph, make_cluster):
    cluster = make_cluster(graph, model(), kind=remote_runtime, mode="async", staleness=1, **CUT)
    losses = [cluster.train_epoch(permit=3).loss for _ in range(2)]
    cluster._graphs.kill(1)
    losses += [cluster.train_epoch(permit=min(k + 2, 11)).loss for k in range(2, 12)]
    assert len(losses) == 12
    assert losses[-1] < losses[0]


def test_an_asynchronous_run_on_many_threads_and_parameter_servers_never_stands_still(graph, make_cluster):
    kind = partial(remote_runtime, threads=2)
    settings = {**CUT, "intervals": 3, "deadline_s": 20}
    cluster = make_cluster(graph, model(), kind=kind, mode="async", staleness=1, **settings)
    notes = []
    cluster._note = lambda what, **details: notes.append(what)
    for epoch in range(15):
        cluster.train_epoch(permit=min(epoch + 2, 14))
    assert notes == ["session"]


def test_rows_that_travel_in_bf16_are_those_of_embedded_servers(graph, make_cluster):
    near, far = (
        make_cluster(graph, dorylus.gcn(), kind=kind, ghost_precision="bf16", **CUT)
        for kind in (LocalRuntime, remote_runtime)
    )
    assert [far.train_epoch().loss for _ in range(3)] == [near.train_epoch().loss for _ in range(3)]


def test_a_server_that_dies_again_during_recovery_is_another_fault_and_not_the_end(graph, make_cluster, fault_free):
    cluster = make_cluster(graph, model(), kind=remote_runtime, **CUT)
    losses = [cluster.train_epoch().loss for _ in range(2)]
    revive, lost = cluster._graphs.revive, [ServersLostError("killed again.")] * 2
    cluster._graphs.revive = lambda: (_ for _ in ()).throw(lost.pop()) if lost else revive()
    cluster._graphs.kill(1)
    losses += [cluster.train_epoch().loss for _ in range(EPOCHS - 2)]
    assert not lost
    assert_same(cluster, losses, fault_free)


def test_remote_servers_report_weights_that_left_the_range_of_float32(graph, make_cluster):
    cluster = make_cluster(graph, model(), kind=remote_runtime, lr=1e30, **CUT)
    assert math.isfinite(cluster.train_epoch().loss)
    with pytest.raises(DivergedError, match=r"after epoch 1, layers\.\d\.\S+ .* overflows"):
        cluster.state()
