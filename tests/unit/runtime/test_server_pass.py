"""How a pass wires servers, weights and pool; what the servers compute is tested with them."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import dorylus
from dorylus.errors import ConfigError, TrainingError
from dorylus.graph.adjacency_matrix import Degrees
from dorylus.partition import LocalShard, make_partition_plan, make_shard
from dorylus.pipeline import DENSE, Kind, Need, Scope, Step, Task, TaskTable, pipe
from dorylus.runtime.engine import Engine
from dorylus.runtime.server_pass import FixedWeights, ServerPass, TrainedWeights
from dorylus.saga.dense import Reply
from dorylus.servers import GhostMessage, ParameterServers

TABLE = TaskTable(
    (
        Step(Kind.APPLY_VERTEX, 0),
        Step(Kind.SCATTER, 0, (Need(0, Scope.OWN),)),
        Step(Kind.GATHER, 1, (Need(1, Scope.OWN), Need(1, Scope.SOURCES))),
        Step(Kind.LOSS, 1, (Need(2, Scope.OWN),)),
        Step(Kind.WEIGHT_UPDATE, 1, (Need(3, Scope.OWN),)),
    )
)


def shards(one_way=False, deepest=None):
    """Eight vertices over two servers, every other vertex on each, two intervals a server.

    A cycle; or, one way, edges from each vertex of server 0 to the next one, which is server 1's.
    """
    vertices = np.arange(8, dtype=np.int32)
    features = np.ones((8, 2), np.float32)
    sources = vertices[::2] if one_way else vertices
    graph = dorylus.Graph.from_edges(sources, (sources + 1) % 8, 8, undirected=not one_way, features=features)
    parts = vertices % 2
    deepest = np.full(8, 1, np.int8) if deepest is None else np.array(deepest, np.int8)
    cut = make_partition_plan(graph.in_degrees(), vertices, parts, 2, deepest, 1, [2, 2])
    degrees = Degrees.of(graph)
    return [LocalShard(make_shard(graph, parts, k, edges=False, degrees=degrees), cut, graph) for k in (0, 1)]


class FakeServer:
    """Records its calls, and sends an empty message wherever a real server would post rows."""

    def __init__(self, shard, peers, history):
        self.server, self.peers, self.history = shard.server, peers, history

    def note(self, what, task):
        self.history.append((what, self.server, task.kind, task.interval))

    def run(self, task):
        self.note("run", task)
        if task.kind is Kind.SCATTER:
            for peer, sends in self.peers.forward.items():
                if sends.has_ghosts_in(task.interval):
                    self.peers.post(peer, GhostMessage(task, (np.zeros(3, np.float32),)))

    def receive(self, message):
        self.note("receive", message.task)

    def call(self, task, weights):
        self.note(f"call with {weights}", task)
        return SimpleNamespace(task=task, body=SimpleNamespace(label="the body"))

    def accept(self, task, reply):
        self.note(f"accept {reply}", task)

    def finished(self, task):
        self.note("finished", task)


class FakeWeights:
    def __init__(self, history):
        self.history = history

    def pull(self, task):
        return "weights"

    def replied(self, task, call, reply):
        self.history.append(("replied", reply, task.kind, task.interval))

    def finish(self, task, done, failed):
        self.history.append(("update", None, task.kind, task.interval))
        done()


class FakePool:
    """Answers every call at once, or fails it."""

    def __init__(self, error=None):
        self.error = error

    def submit(self, call, done, failed):
        done("reply") if self.error is None else failed(self.error)


@pytest.fixture
def make_pass():
    """Makes passes of fake servers; returns (pass, engine, history)."""
    engines = []

    def make(pool=None, weights=None, **options):
        engine, history = Engine(1, 30.0), []
        engines.append(engine)
        arranged = shards(**options)
        pass_ = ServerPass(
            arranged, engine, pool or FakePool(), weights or FakeWeights(history), pipe(TABLE),
            lambda shard, peers: FakeServer(shard, peers, history), everything=False,
        )  # fmt: skip
        return pass_, engine, history

    yield make
    for engine in engines:
        engine.close()


def of_task(history, kind, interval):
    return [(what, where) for what, where, *task in history if task == [kind, interval] and what != "receive"]


def test_a_dense_task_goes_to_the_pool_and_its_reply_to_server_and_weights(make_pass):
    pass_, engine, history = make_pass()
    engine.run(pass_, 0)
    for kind in (Kind.APPLY_VERTEX, Kind.LOSS):
        steps = of_task(history, kind, 3)
        assert steps == [("call with weights", 1), ("accept reply", 1), ("replied", "reply"), ("finished", 1)]


def test_a_sparse_task_runs_on_its_server_and_a_weight_update_on_the_weights(make_pass):
    pass_, engine, history = make_pass()
    engine.run(pass_, 0)
    assert of_task(history, Kind.GATHER, 0) == [("run", 0), ("finished", 0)]
    assert of_task(history, Kind.WEIGHT_UPDATE, 2) == [("update", None), ("finished", 1)]


def test_a_message_is_delivered_before_its_event(make_pass):
    pass_, engine, history = make_pass()
    engine.run(pass_, 0)
    for shard in shards():
        for interval, sources in zip(shard.mine, shard.reads().sources, strict=True):
            remote = sources - set(shard.mine)
            assert remote  # otherwise the check below is vacuous
            gathered = history.index(("run", shard.server, Kind.GATHER, interval))
            for source in remote:
                assert history.index(("receive", shard.server, Kind.SCATTER, source)) < gathered


def test_deliveries_record_sender_receiver_and_size(make_pass):
    pass_, engine, _ = make_pass()
    engine.run(pass_, 0)
    assert sorted(delivery[:3] for delivery in pass_.deliveries) == [(0, 1, 12)] * 2 + [(1, 0, 12)] * 2
    assert all(delivery.start_s <= delivery.end_s for delivery in pass_.deliveries)


def test_in_a_directed_graph_rows_go_with_the_edges_and_cotangents_against_them(make_pass):
    pass_, *_ = make_pass(one_way=True)
    first, second = (server.peers for server in pass_.servers.values())
    assert [first.forward[1].all_rows.size, first.backward[1].all_rows.size] == [4, 0]
    assert [second.forward[0].all_rows.size, second.backward[0].all_rows.size] == [0, 4]


def test_only_an_evaluation_sends_rows_that_reach_no_label(make_pass):
    deepest = [1, 0, -1, -1, -1, -1, -1, 0]  # vertex 0 has a label, its neighbours reach it
    sent = {}
    for everything in (False, True):
        arranged = shards(deepest=deepest)
        engine, peers_of = Engine(1, 30.0), {}
        ServerPass(
            arranged, engine, FakePool(), FakeWeights([]), pipe(TABLE),
            lambda shard, peers, found=peers_of: found.update({shard.server: peers}) or FakeServer(shard, peers, []),
            everything=everything,
        )  # fmt: skip
        engine.close()
        sends = peers_of[1].forward[0]
        sent[everything] = sum(sends.rows(0, interval).size for interval in (2, 3))
    assert sent == {False: 2, True: 4}


def test_an_error_of_a_body_names_the_body_the_interval_and_the_epoch(make_pass):
    pass_, engine, _ = make_pass(pool=FakePool(ArithmeticError("too much")))
    message = r"^the body failed on interval 0 in epoch 1: ArithmeticError: too much$"
    with pytest.raises(TrainingError, match=message) as caught:
        engine.run(pass_, 0)
    assert isinstance(caught.value.__cause__, ArithmeticError)


def test_an_error_with_a_cure_is_reported_unchanged(make_pass):
    pass_, engine, _ = make_pass(pool=FakePool(ConfigError("use less.")))
    with pytest.raises(ConfigError, match=r"^use less\.$"):
        engine.run(pass_, 0)


def test_an_error_in_accepting_a_reply_fails_the_task_on_every_thread(make_pass):
    class OtherThreadPool:
        def submit(self, call, done, failed):
            thread = threading.Thread(target=done, args=("reply",))
            thread.start()
            thread.join()

    class Refusing(FakeWeights):
        def replied(self, task, call, reply):
            raise ValueError("not today")

    pass_, engine, _ = make_pass(pool=OtherThreadPool(), weights=Refusing([]))
    with pytest.raises(TrainingError, match=r"^AV of interval 0 in epoch 1 failed: ValueError: not today$"):
        engine.run(pass_, 0)


def test_an_evaluation_uses_one_version_for_all_its_tasks_and_updates_none():
    fixed = FixedWeights()
    fixed.weights = {"w": torch.ones(2)}
    assert fixed.pull(task_of(Kind.APPLY_VERTEX)) is fixed.weights
    with pytest.raises(TrainingError, match="only evaluates"):
        fixed.finish(task_of(Kind.WEIGHT_UPDATE), pytest.fail, pytest.fail)


def task_of(kind, interval=0, epoch=0):
    return Task(epoch, 0, interval, list(Kind).index(kind), kind)


@pytest.fixture
def trained():
    """Weights of one linear layer on three intervals, stepped by plain gradient descent."""
    torch.manual_seed(0)
    program = torch.nn.Linear(2, 1)
    parameters = ParameterServers(
        program, make_optimizer=lambda named: torch.optim.SGD([each for _, each in named], lr=1.0), num_intervals=3
    )
    return TrainedWeights(parameters), parameters


def reply_of(loss, grad=1.0):
    return Reply(weight_grads={"weight": torch.full((1, 2), grad), "bias": torch.zeros(1)}, loss=loss)


def call_of(weights):
    return SimpleNamespace(weights=weights, body=SimpleNamespace(weight_names=("weight", "bias")))


def test_gradients_are_pushed_under_their_task_and_the_update_follows_the_last_interval(trained):
    weights, parameters = trained
    before = parameters.weights()["weight"]
    for interval in (1, 0, 2):
        task = task_of(Kind.LOSS, interval)
        weights.replied(task, call_of(weights.pull(task)), reply_of(0.5, grad=interval + 1.0))
    for interval in (1, 2):
        weights.finish(task_of(Kind.WEIGHT_UPDATE, interval), lambda: None, pytest.fail)
        assert torch.equal(parameters.weights()["weight"], before)
    over = []
    weights.finish(task_of(Kind.WEIGHT_UPDATE, 0), lambda: over.append(True), pytest.fail)
    assert over == [True]
    assert torch.allclose(parameters.weights()["weight"], before - 6.0)


@pytest.mark.parametrize("kind", sorted(DENSE - {Kind.LOSS, Kind.GRAD_APPLY_VERTEX, Kind.GRAD_APPLY_EDGE}))
def test_a_forward_task_pushes_nothing(trained, kind):
    weights, _ = trained
    task = task_of(kind)
    weights.replied(task, call_of(weights.pull(task)), Reply())
    weights.replied(task, call_of(weights.pull(task)), Reply())  # a second push of one task would be refused
    assert weights.traffic["weight_gradients"] == 0


def test_a_loss_is_the_sum_over_intervals_in_their_order_and_is_taken_once(trained):
    weights, _ = trained
    losses = {0: 1e16, 1: 1.0, 2: -1e16}  # their sum depends on the order
    pushes = [(2, 0), (0, 0), (0, 1), (1, 0)]  # interval 0 is an epoch ahead of interval 1
    for interval, epoch in pushes:
        task = task_of(Kind.LOSS, interval, epoch)
        weights.replied(task, call_of(weights.pull(task)), reply_of(losses[interval] + epoch))
    assert weights.take_loss(0) == (1e16 + 1.0) - 1e16
    assert weights.take_loss(1) == 1e16 + 1
    with pytest.raises(KeyError):
        weights.take_loss(0)


def test_the_weights_of_every_task_and_its_gradients_are_counted_as_they_would_travel(trained):
    weights, _ = trained
    for interval in (0, 1):
        task = task_of(Kind.LOSS, interval)
        weights.replied(task, call_of(weights.pull(task)), reply_of(0.5))
    assert weights.traffic == {"weights": 2 * 12, "weight_gradients": 2 * 12}
