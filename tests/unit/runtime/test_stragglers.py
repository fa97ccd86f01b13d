"""Leftovers of an ended session, a running task or a message in flight, do not affect the next session."""

import threading
import time
import weakref
from contextlib import suppress
from functools import partial

import pytest
import torch

import dorylus
from dorylus.pools import ThreadsPool
from dorylus.pools.limited import LimitedPool
from dorylus.runtime import remote
from dorylus.runtime.fence import OtherSessionError, PeerLostError
from dorylus.runtime.graph_node import GraphNode
from dorylus.runtime.parameter_node import ParameterNode
from dorylus.runtime.server_process import ServerProcess
from dorylus.wire import Frame, WireError
from in_process_servers import remote_runtime

CUT = {"servers": 3, "intervals": 2, "parameter_servers": 2, "threads": 1}
EPOCHS = 4
SOON_S = 30.0


@pytest.fixture(autouse=True)
def faults_follow_each_other_at_once(monkeypatch):
    monkeypatch.setattr(remote, "BACK_OFF_S", 0.0)


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=150, num_classes=3, num_features=6, average_degree=5, seed=0)


def model():
    return dorylus.gcn(dropout=0.5)


@pytest.fixture
def fault_free(graph, make_cluster):
    cluster = make_cluster(graph, model(), **CUT)
    return [cluster.train_epoch().loss for _ in range(EPOCHS)], cluster.state().weights


def train(cluster, epochs=EPOCHS):
    """Trains this many epochs; returns the losses, the weights, and the records of the cluster."""
    notes = []
    cluster._note = lambda what, **details: notes.append((what, details))
    losses = [cluster.train_epoch().loss for _ in range(epochs)]
    return losses, cluster.state().weights, notes


def faults(found):
    return [what for what, _ in found[2] if what in ("fault", "recovered")]


def assert_same(found, expected):
    assert found[0] == expected[0]
    assert all(torch.equal(found[1][name], weight) for name, weight in expected[1].items())


class LongTask(ThreadsPool):
    """A pool with one task, in the second epoch, that outlives its session: another server dies as it begins.

    It ends when ``release`` is set; ``left``: the call of the server that it was part of is over.
    """

    def __init__(self, monkeypatch):
        self._lock, self._thread = threading.Lock(), None
        self.begun, self.release, self.left = threading.Event(), threading.Event(), threading.Event()
        self.cluster = None
        whole = GraphNode.train_epoch

        def train_epoch(node, *arguments):
            try:
                return whole(node, *arguments)
            finally:
                if threading.get_ident() == self._thread:
                    self.left.set()

        monkeypatch.setattr(GraphNode, "train_epoch", train_epoch)

    def submit(self, call, done, failed):
        with self._lock:
            is_first = self._thread is None and call.task.epoch == 1
            if is_first:
                self._thread = threading.get_ident()
        if is_first:
            self.begun.set()
            other = (call.task.interval // CUT["intervals"] + 1) % CUT["servers"]
            threading.Thread(target=self.cluster._graphs.kill, args=(other,)).start()
            assert self.release.wait(SOON_S)
        elif self._thread is not None and self.cluster._session == 2 and self.cluster._began_at is not None:
            self.in_next_session()
        super().submit(call, done, failed)

    def in_next_session(self):
        """The first task of the next session waits until the server knows that the long one has ended."""
        self.release.set()
        assert self.left.wait(SOON_S)


def test_a_task_that_outlives_its_session_ends_that_session_and_no_other(graph, make_cluster, fault_free, monkeypatch):
    pool = LongTask(monkeypatch)
    pool.cluster = make_cluster(graph, model(), kind=remote_runtime, pool=pool, deadline_s=2.0, **CUT)
    found = train(pool.cluster)
    assert_same(found, fault_free)
    assert faults(found) == ["fault", "recovered"]


@pytest.mark.parametrize(("what", "epoch"), [("pull", EPOCHS - 2), ("finish", 0)])
def test_a_message_of_an_ended_session_reaches_no_weights(graph, make_cluster, fault_free, monkeypatch, what, epoch):
    """A message of the first session comes once more, just after the parameter servers were restored for the second."""
    sent, answer, restore = {}, ParameterNode._answer, ParameterNode.restore

    def keeping(node, frame):
        if cluster._session == 1 and frame.header.get("what") == what and frame.header["epoch"] == epoch:
            sent[node] = Frame(dict(frame.header), {name: array.copy() for name, array in frame.arrays.items()})
        return answer(node, frame)

    def restored(node, *arguments):
        restore(node, *arguments)
        if node in sent:
            with suppress(WireError):
                answer(node, sent.pop(node))

    monkeypatch.setattr(ParameterNode, "_answer", keeping)
    monkeypatch.setattr(ParameterNode, "restore", restored)
    cluster = make_cluster(graph, model(), kind=remote_runtime, **CUT)
    cluster._keep_every = EPOCHS  # so the next session begins at the first epoch
    first = train(cluster, EPOCHS - 1)
    assert sent
    cluster._graphs.kill(1)
    second = train(cluster, 1)
    assert not sent
    assert_same((first[0] + second[0], second[1]), fault_free)
    assert faults(second) == ["fault", "recovered"]


class HeldTask(ThreadsPool):
    """A pool whose first task lasts until it is released."""

    def __init__(self):
        self.begun, self.release, self.first = threading.Event(), threading.Event(), True

    def submit(self, call, done, failed):
        if self.first:
            self.first = False
            self.begun.set()
            assert self.release.wait(SOON_S)
        super().submit(call, done, failed)


class Alone:
    """One graph server and one parameter server, driven by the test; a long task keeps their session open."""

    def __init__(self, graph, make_cluster, pool, **settings):
        settings = {"servers": 1, "intervals": 2, "threads": 1} | settings
        self.cluster = make_cluster(graph, model(), kind=remote_runtime, pool=pool, **settings)
        self.node, self.parameters = self.cluster._graphs.nodes[0], self.cluster._parameters.nodes[0]
        self.threads = []

    def begin(self, session, leave=True):
        left = self.node.leave(session) if leave else None
        self.parameters.restore(session, None, 0)
        key = (self.parameters.address(), self.parameters.key(session))
        self.node.begin(session, 0, {0: self.node.ghosts()}, [key])
        self.node.connect(session, {0: self.node.address()})
        return left

    def train(self, session, epoch=0):
        """Trains an epoch; returns its loss, and how many messages the graph server has refused."""
        report = self.node.train_epoch(session, None)
        loss = sum(report.losses[interval] for interval in sorted(report.losses))
        self.parameters.end_epoch(session, epoch + 1, loss, False)
        return loss, report.refused

    def in_background(self, work, *arguments):
        """Starts some work; returns a list that will hold its answer or its error."""
        answers = []

        def carry_out():
            try:
                answers.append(work(*arguments))
            except Exception as error:
                answers.append(error)

        self.threads.append(threading.Thread(target=carry_out))
        self.threads[-1].start()
        return answers

    def join(self):
        for thread in self.threads:
            thread.join(SOON_S)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_next_session_waits_for_the_running_task_and_then_has_all_the_memory_of_the_last(
    graph, make_cluster, threads
):
    pool = HeldTask()
    alone = Alone(graph, make_cluster, pool, threads=threads)
    alone.begin(1)
    trained = alone.in_background(alone.node.train_epoch, 1, None)
    assert pool.begun.wait(SOON_S)
    process = alone.node._session.process
    servers = [
        weakref.ref(server) for group in (process.training, process.evaluation) for server in group.servers.values()
    ]
    blocks = [weakref.ref(block) for server in servers for block in server()._context.matrices._blocks.values()]
    assert blocks
    del process
    left = alone.in_background(alone.node.leave, 2)
    while alone.node._fence.is_in(1):
        time.sleep(0.001)
    alone.threads[-1].join(0.1)
    assert not left  # the task is still running
    pool.release.set()
    alone.join()
    assert left == [True]
    assert isinstance(trained.pop(), PeerLostError)
    assert not [each for each in (*servers, *blocks) if each() is not None]
    alone.begin(3)
    alone.train(3)


def test_a_task_that_never_ends_keeps_its_memory_and_the_run_continues(graph, make_cluster):
    pool = HeldTask()
    alone = Alone(graph, make_cluster, pool, deadline_s=0.5)
    alone.begin(1)
    trained = alone.in_background(alone.node.train_epoch, 1, None)
    assert pool.begun.wait(SOON_S)
    held = alone.node._session.process.training.servers[0]._context.matrices
    assert alone.begin(2) is False
    assert len(held) == 0
    found = alone.train(2)
    pool.release.set()
    alone.join()
    assert isinstance(trained[0], PeerLostError)
    expected = make_cluster(graph, model(), servers=1, intervals=2).train_epoch().loss
    assert found == (expected, 0)
    assert alone.train(2, 1)[1] == 1  # the reply to the task's call


class LateReply(ThreadsPool):
    """A pool that keeps its first reply for later, as a function that is slow does."""

    def __init__(self):
        self.late, self.begun = None, threading.Event()

    def submit(self, call, done, failed):
        if self.begun.is_set():
            super().submit(call, done, failed)
        else:
            super().submit(call, lambda reply: setattr(self, "late", partial(done, reply)), failed)
            self.begun.set()


def test_a_pools_reply_to_an_ended_session_is_dropped_and_counted(graph, make_cluster):
    pool = LateReply()
    alone = Alone(graph, make_cluster, pool)
    alone.begin(1)
    trained = alone.in_background(alone.node.train_epoch, 1, None)
    assert pool.begun.wait(SOON_S)
    server = weakref.ref(alone.node._session.process.training.servers[0])
    assert alone.begin(2) is True
    alone.join()
    assert isinstance(trained.pop(), PeerLostError)
    assert server() is None  # though the pool still has a call of it
    pool.late()
    expected = make_cluster(graph, model(), servers=1, intervals=2).train_epoch().loss
    assert alone.train(2) == (expected, 1)


class FirstTakesForEver(ThreadsPool):
    """A pool that never answers its first call."""

    def __init__(self):
        self.sent, self.cancelled = [], []

    def submit(self, call, done, failed):
        self.sent.append(call)
        if len(self.sent) > 1:
            super().submit(call, done, failed)

    def cancel(self, calls):
        self.cancelled += calls


class OneAtATime(LimitedPool):
    """A pool of one function; ``waits``: a call waits for it."""

    def __init__(self):
        self.functions, self.waits = FirstTakesForEver(), threading.Event()
        super().__init__(self.functions, 1)

    def submit(self, call, done, failed):
        super().submit(call, done, failed)
        if self.load.waiting:
            self.waits.set()


def test_calls_of_an_ended_session_are_not_sent_any_more_and_leave_their_places_to_the_next(graph, make_cluster):
    pool = OneAtATime()
    alone = Alone(graph, make_cluster, pool, intervals=4)
    alone.begin(1)
    trained = alone.in_background(alone.node.train_epoch, 1, None)
    assert pool.waits.wait(SOON_S)
    assert alone.begin(2) is True
    alone.join()
    assert isinstance(trained.pop(), PeerLostError)
    assert [id(call) for call in pool.functions.cancelled] == [id(call) for call in pool.functions.sent]
    assert pool.load[:3] == (1, 0, 0)
    expected = make_cluster(graph, model(), servers=1, intervals=4).train_epoch().loss
    assert alone.train(2)[0] == expected


def test_a_server_whose_epoch_fails_has_its_calls_cancelled_before_the_driver_comes_back(graph, make_cluster):
    """Servers that were lost may take minutes to be there again."""
    pool = OneAtATime()
    alone = Alone(graph, make_cluster, pool, intervals=4)
    alone.begin(1)
    trained = alone.in_background(alone.node.train_epoch, 1, None)
    assert pool.waits.wait(SOON_S)
    alone.node._session.process.fail(PeerLostError("the connection between servers 0 and 1 is lost."))
    alone.join()
    assert isinstance(trained.pop(), PeerLostError)
    assert pool.load[:3] == (1, 0, 0)
    assert len(pool.functions.sent) == 1


CALLS = {
    "leave": (),
    "begin": (0, {}, []),
    "connect": ({},),
    "train_epoch": (None,),
    "synchronise": (),
    "outputs": (-1, None),
    "pool_news": (),
    "settle_pool": (),
    "pool_figures": (),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_call_of_an_earlier_session_is_refused_and_counted_and_ends_nothing(graph, make_cluster, what):
    alone = Alone(graph, make_cluster, ThreadsPool())
    alone.begin(2)
    with pytest.raises(OtherSessionError, match="of session 1 is refused: graph server 0 is in session 2"):
        getattr(alone.node, what)(1, *CALLS[what])
    assert alone.train(2, 0)[1] == 1
    assert alone.train(2, 1)[1] == 0


def test_a_session_that_is_overtaken_while_it_begins_leaves_nothing_behind(graph, make_cluster, monkeypatch):
    """The features are gathered once, which may take long; another server dies meanwhile."""
    gathers, release, gather = threading.Event(), threading.Event(), ServerProcess._gather_static

    def slowly(process):
        gathers.set()
        assert release.wait(SOON_S)
        return gather(process)

    monkeypatch.setattr(ServerProcess, "_gather_static", slowly)
    alone = Alone(graph, make_cluster, ThreadsPool(), threads=2)
    first = alone.in_background(alone.begin, 1)
    assert gathers.wait(SOON_S)
    second = alone.in_background(alone.begin, 2)
    while alone.node._fence.is_in(1):
        time.sleep(0.001)
    assert not first
    assert not second
    release.set()
    alone.join()
    assert isinstance(first[0], PeerLostError)
    assert second == [True]
    assert alone.node._session.number == 2
    alone.train(2)
