"""The contract of pools of dense tasks: the shipped ones, one that answers late and out of order, and wrappers.

A further pool enters by its name and a function that makes it, in ``IMPLEMENTATIONS``. Where this process is connected
to a Ray cluster, as it is when ``tests/soak/test_ray_pool_nodes.py`` runs these tests, the pool there is one of
them.
"""

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
import torch
from torch import nn

import dorylus
from dorylus.errors import TrainingError
from dorylus.pipeline import Kind, Task
from dorylus.pools import ThreadsPool
from dorylus.pools.autotune import Autotuned
from dorylus.pools.limited import LimitedPool
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import Lost, Throttled
from dorylus.pools.ray import ray_pool
from dorylus.pools.relaunch import Relaunching
from dorylus.saga import dense
from dorylus.saga.dense import Call, Mode
from dorylus.saga.stages import Body
from in_process_ray import PoolOnTwin

DEADLINE_S = 30.0


class LatePool:
    """Answers from threads of its own, the newest call first."""

    def __init__(self):
        # One call, one thread: torch's own threads would cut sums differently, and change their last bits.
        self._threads = ThreadPoolExecutor(
            3, thread_name_prefix="dorylus-pool", initializer=torch.set_num_threads, initargs=(1,)
        )
        self._calls = []
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, call, done, failed):
        with self._lock:
            self._calls.append((call, done, failed))
        self._threads.submit(self._answer_the_newest)

    def cancel(self, calls):
        cancelled = {id(call) for call in calls}
        with self._lock:
            self._calls = [each for each in self._calls if id(each[0]) not in cancelled]

    def close(self):
        self._closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _answer_the_newest(self):
        with self._lock:
            if not self._calls:  # it was cancelled
                return
            call, done, failed = self._calls.pop()
        try:
            reply = dense.run(call)
        except Exception as error:
            failed(error)
        else:
            if not self._closed:
                done(reply)


class SabotagedPool:
    """A late pool of which three calls in ten are lost, throttled, answered twice, or never answered."""

    def __init__(self):
        self._inner, self._random, self._lock = LatePool(), random.Random(0), threading.Lock()

    def submit(self, call, done, failed):
        with self._lock:
            outcome = self._random.choices(["well", "lost", "throttled", "twice", "never"], [70, 12, 6, 9, 3])[0]
        if outcome == "lost":
            self._inner.submit(call, lambda reply: failed(Lost("the function died")), failed)
        elif outcome == "throttled":
            failed(Throttled())
        elif outcome == "twice":
            self._inner.submit(call, lambda reply: (done(reply), done(reply)), failed)
        elif outcome == "never":
            self._inner.submit(call, lambda reply: None, failed)
        else:
            self._inner.submit(call, done, failed)

    def cancel(self, calls):
        self._inner.cancel(calls)

    def close(self):
        self._inner.close()


def sabotaged():
    """The wrapper of functions around a faulty pool, with short limits for short tests."""
    impatient = Policy(attempts=20, first_s=0.3, at_least_s=0.05, backoff_s=0.001, backoff_at_most_s=0.01)
    return Autotuned(Relaunching(SabotagedPool(), impatient), 4)


IMPLEMENTATIONS = {
    "threads": ThreadsPool,
    "late": LatePool,
    "limited": lambda: LimitedPool(LatePool(), 2),
    "limited threads": lambda: LimitedPool(ThreadsPool(), 1),
    "relaunching": lambda: Relaunching(LatePool()),
    "relaunching threads": lambda: Relaunching(ThreadsPool()),
    "sabotaged": sabotaged,
    "ray in this process": PoolOnTwin,
}
if ray.is_initialized():
    IMPLEMENTATIONS = {"a ray cluster": lambda: LimitedPool(ray_pool(None, Policy()), 2)}
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's processes cannot import this file


@pytest.fixture(params=IMPLEMENTATIONS)
def pool(request):
    made = IMPLEMENTATIONS[request.param]()
    yield made
    made.close()


class Answers:
    """Collects the answers of a pool; waits for a number of them."""

    def __init__(self):
        self.done = []
        self.failed = []
        self._changed = threading.Condition()

    def take(self, call, kind):
        def note(answer):
            with self._changed:
                getattr(self, kind).append((call.task, answer))
                self._changed.notify_all()

        return note

    def submit(self, pool, call):
        pool.submit(call, self.take(call, "done"), self.take(call, "failed"))

    def wait_for(self, intervals):
        with self._changed:
            assert self._changed.wait_for(
                lambda: intervals <= {task.interval for task, _ in self.done + self.failed}, DEADLINE_S
            )

    def wait(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.done) + len(self.failed) >= count, DEADLINE_S)


class Refuses(nn.Module):
    def forward(self, x):
        raise ArithmeticError("this body refuses")


torch.manual_seed(0)
BODY = Body(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))
WEIGHTS = {name: p.detach().clone().requires_grad_() for name, p in BODY.module.named_parameters()}


def a_call(interval, mode=Mode.FORWARD, body=BODY):
    torch.manual_seed(interval)
    task = Task(epoch=0, phase=0, interval=interval, step=0, kind=Kind.APPLY_VERTEX)
    weights = WEIGHTS if body is BODY else {}
    cotangents = (torch.randn(6, 3),) if mode is Mode.GRADIENT else ()
    return Call(task, mode, body, weights, (torch.randn(6, 4),), needs_grad=(True,), cotangents=cotangents)


def test_every_call_is_answered_exactly_once(pool):
    answers = Answers()
    for interval in range(40):
        answers.submit(pool, a_call(interval))
    answers.wait(40)
    pool.close()
    assert sorted(task.interval for task, _ in answers.done) == list(range(40))
    assert answers.failed == []


@pytest.mark.parametrize("mode", [Mode.FORWARD, Mode.GRADIENT])
def test_an_answer_is_what_the_call_gives_to_the_last_bit(pool, mode):
    answers = Answers()
    for interval in range(10):
        answers.submit(pool, a_call(interval, mode))
    answers.wait(10)
    for task, reply in answers.done:
        expected = dense.run(a_call(task.interval, mode))
        assert all(torch.equal(a, b) for a, b in zip(reply.outputs, expected.outputs, strict=True))
        assert reply.weight_grads.keys() == expected.weight_grads.keys()
        assert all(torch.equal(reply.weight_grads[name], grad) for name, grad in expected.weight_grads.items())
        if mode is Mode.GRADIENT:
            assert torch.equal(reply.input_grads[0], expected.input_grads[0])


def test_many_threads_may_submit_at_once(pool):
    answers, begin = Answers(), threading.Barrier(4)

    def submit(first):
        torch.set_num_threads(1)
        begin.wait(DEADLINE_S)
        for interval in range(first, first + 25):
            answers.submit(pool, a_call(interval, Mode.GRADIENT))

    submitters = [threading.Thread(target=submit, args=(25 * k,)) for k in range(4)]
    for each in submitters:
        each.start()
    answers.wait(100)
    for each in submitters:
        each.join(DEADLINE_S)
    pool.close()
    assert answers.failed == []
    assert sorted(task.interval for task, _ in answers.done) == list(range(100))


def test_a_pool_may_be_closed_while_calls_are_under_way_and_others_come(pool):
    answers, over = Answers(), threading.Event()

    def submit():
        torch.set_num_threads(1)
        for interval in range(1000):
            if over.is_set():
                return
            try:
                answers.submit(pool, a_call(interval))
            except (TrainingError, RuntimeError):  # it is closed
                return

    submitters = [threading.Thread(target=submit) for _ in range(3)]
    for each in submitters:
        each.start()
    answers.wait(20)
    over.set()
    pool.close()
    for each in submitters:
        each.join(DEADLINE_S)
    assert not any(each.is_alive() for each in submitters)
    assert len(answers.done) >= 20


def test_an_error_of_a_body_goes_to_failed_and_does_not_disturb_other_calls(pool):
    answers = Answers()
    for interval in range(10):
        answers.submit(pool, a_call(interval, body=Body(Refuses()) if interval == 3 else BODY))
    answers.wait(10)
    assert [(task.interval, str(error)) for task, error in answers.failed] == [(3, "this body refuses")]
    assert isinstance(answers.failed[0][1], ArithmeticError)
    assert len(answers.done) == 9


def test_cancelled_calls_do_not_disturb_the_others(pool):
    answers, calls = Answers(), [a_call(interval) for interval in range(60)]
    for call in calls:
        answers.submit(pool, call)
        if call.task.interval % 20 == 19:
            pool.cancel([each for each in calls[: call.task.interval] if each.task.interval % 2])
    kept = set(range(0, 60, 2)) | {59}
    answers.wait_for(kept)
    pool.close()
    answered = [task.interval for task, _ in answers.done]
    assert kept <= set(answered)
    assert len(answered) == len(set(answered))
    assert answers.failed == []


def test_cancelling_answered_or_unknown_calls_does_nothing(pool):
    answers, call = Answers(), a_call(0)
    answers.submit(pool, call)
    answers.wait(1)
    pool.cancel([call, a_call(1)])
    pool.cancel([])
    answers.submit(pool, a_call(2))
    answers.wait(2)
    assert [task.interval for task, _ in answers.done] == [0, 2]


def test_nothing_is_answered_after_close(pool):
    answers = Answers()
    for interval in range(20):
        answers.submit(pool, a_call(interval))
    pool.close()
    count = len(answers.done)
    assert count == len({task for task, _ in answers.done})
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dorylus-")]
    assert len(answers.done) == count


def test_a_pool_may_be_closed_twice(pool):
    pool.close()
    pool.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dorylus-")]


class Gate(dorylus.Layer):
    """A user's layer with a dense ApplyEdge."""

    reduce = "softmax"

    def __init__(self, in_columns, out_columns, **finish):
        super().__init__(in_columns, out_columns, **finish)
        self.message = nn.Linear(2 * in_columns + 1, out_columns)
        self.score = nn.Linear(out_columns, 1)

    def apply_edge(self, source, destination, weight):
        message = torch.tanh(self.message(torch.cat([source, destination, weight], 1)))
        return message, self.score(message)


def gates(num_features, num_classes):
    torch.manual_seed(0)
    return dorylus.Program([Gate(num_features, 5), Gate(5, num_classes, dropout=0.5)])


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=150, num_classes=3, num_features=6, average_degree=5, seed=0)


@pytest.fixture(scope="module")
def by_threads():
    """The losses and logits of runs on threads, by model and settings: made once, for all pools to be compared with."""
    return {}


@pytest.mark.parametrize("settings", [{}, {"rematerialize": True}, {"servers": 3, "parameter_servers": 2}], ids=str)
@pytest.mark.parametrize(
    "model",
    ["gcn", "gates", pytest.param("gat", marks=pytest.mark.soak), pytest.param("sage", marks=pytest.mark.soak)],
)
def test_training_through_the_pool_gives_the_same_to_the_last_bit(
    pool, graph, make_cluster, by_threads, model, settings
):
    def run(through):
        recipe = gates(6, 3) if model == "gates" else getattr(dorylus, model)(dropout=0.5)
        cluster = make_cluster(graph, recipe, pool=through, intervals=7, **settings)
        return [cluster.train_epoch().loss for _ in range(3)], cluster.outputs().whole()

    losses, logits = run(pool)
    if (model, str(settings)) not in by_threads:
        by_threads[model, str(settings)] = run(ThreadsPool())
    expected_losses, expected_logits = by_threads[model, str(settings)]
    assert losses == expected_losses
    assert (logits == expected_logits).all()


class Breaks(dorylus.Layer):
    """Fails on a cut of the rows, not on the few rows with which a body is checked before the run."""

    def apply_vertex(self, own, gathered):
        if len(own) > 8:
            raise ArithmeticError("too many rows")
        return gathered


def test_a_run_through_the_pool_ends_with_the_bodys_error_and_the_tasks_name(pool, graph, make_cluster):
    cluster = make_cluster(
        graph, dorylus.Program([Breaks(6, 6), dorylus.gcn(num_layers=1).build(6, 3).layer(0)]), pool=pool
    )
    with pytest.raises(
        TrainingError,
        match=r"^apply_vertex of layer 0 \(Breaks\).* failed on interval \d in epoch 1: ArithmeticError: too many rows",
    ):
        cluster.train_epoch()
