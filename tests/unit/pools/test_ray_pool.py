import socket
import threading

import pytest
import ray
import torch
from torch import nn

from dorylus.config import RunConfig
from dorylus.errors import ConfigError, TrainingError
from dorylus.pipeline import Kind, Task
from dorylus.pools import POOLS, PoolListeners, PoolRequest, check_pool, make_pool, makers
from dorylus.pools.functions.unfused import Unfused
from dorylus.pools.limited import LimitedPool
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import Exhausted, Unavailable
from dorylus.pools.ray import KEPT_WEIGHTS, ClusterCores, connected
from dorylus.saga import dense
from dorylus.saga.dense import Call, Kept, Mode
from dorylus.saga.stages import Body
from in_process_ray import InProcessRay, PoolOnTwin

DEADLINE_S = 30.0
TASK = Task(epoch=2, phase=0, interval=7, step=0, kind=Kind.APPLY_VERTEX)
BODY = Body(nn.Linear(3, 2), "apply_vertex of layer 1 (Mine)")
ROWS = torch.arange(12, dtype=torch.float32).reshape(4, 3)
# A policy without patience: a task that is not answered at once counts as never answered.
IMPATIENT = Policy(first_s=1e-3, at_least_s=1e-3, at_most_s=1e-3, refused_after_s=1e-3, down_after_s=1e-3)


def weights(value=1.0):
    return {name: torch.full_like(p, value).requires_grad_() for name, p in BODY.module.named_parameters()}


def a_call(mode=Mode.FORWARD, body=BODY, given=None, **more):
    cotangents = (torch.ones(4, 2),) if mode is Mode.GRADIENT else ()
    given = weights() if given is None else given
    return Call(TASK, mode, body, given, (ROWS,), needs_grad=(True,), cotangents=cotangents, **more)


class Caller:
    """Submits calls and waits for their answers."""

    def __init__(self, pool):
        self.pool, self.twin, self.answers = pool, pool.twin, []
        self._answered = threading.Condition()

    def submit(self, call):
        self.pool.submit(call, self._note, self._note)

    def run(self, call):
        before = len(self.answers)
        self.submit(call)
        return self.wait(before + 1)[-1]

    def wait(self, count):
        with self._answered:
            assert self._answered.wait_for(lambda: len(self.answers) >= count, DEADLINE_S)
        return self.answers

    def _note(self, answer):
        with self._answered:
            self.answers.append(answer)
            self._answered.notify_all()


@pytest.fixture
def caller_of():
    """Makes pools on in-process twins of Ray, each with a caller, and closes them."""
    made = []

    def make(*cores, policy=None, **twin):
        made.append(PoolOnTwin(InProcessRay(*cores, **twin), policy))
        return Caller(made[-1])

    yield make
    for pool in made:
        pool.close()


def test_a_task_takes_one_core_anywhere_and_ray_retries_it_as_often_as_the_policy_allows(caller_of):
    options = caller_of(policy=Policy(attempts=4)).twin.options
    assert (options["num_cpus"], options["scheduling_strategy"], options["max_retries"]) == (1, "SPREAD", 3)


def test_a_body_and_a_version_of_the_weights_are_stored_once_for_all_calls(caller_of):
    caller, given = caller_of(), weights()
    for _ in range(5):
        caller.run(a_call(given=given))
    assert len(caller.twin.stored) == 2
    caller.run(a_call(given=weights()))
    assert len(caller.twin.stored) == 3


def test_an_old_version_of_the_weights_is_forgotten_and_the_newest_gives_the_answer(caller_of):
    caller = caller_of(held=True)
    versions = [weights(float(k)) for k in range(KEPT_WEIGHTS + 1)]
    for given in [*versions, versions[-1], versions[0]]:
        caller.submit(a_call(given=given))
    assert len(caller.twin.stored) == 1 + len(versions) + 1
    caller.twin.tasks[-2].carry_out()
    (reply,) = caller.wait(1)
    assert torch.equal(reply.outputs[0], dense.run(a_call(given=versions[-1])).outputs[0])


def test_what_a_call_keeps_in_this_process_does_not_travel(caller_of):
    caller = caller_of()
    assert caller.run(a_call(keep=True)).kept is None
    kept = Kept((ROWS,), (torch.zeros(4, 2),))  # of another body: its graph would give other gradients, or none
    reply = caller.run(a_call(Mode.GRADIENT, kept=kept))
    assert torch.equal(reply.input_grads[0], dense.run(a_call(Mode.GRADIENT)).input_grads[0])


class StubbornError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class Fails(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def forward(self, x):
        raise ArithmeticError("no rows of mine") if self.error is None else StubbornError(*self.error)


def test_an_error_of_the_body_arrives_as_it_is_and_is_not_tried_again(caller_of):
    error = caller_of().run(a_call(body=Body(Fails(None)), given={}))
    assert (type(error), str(error)) == (ArithmeticError, "no rows of mine")


def test_an_error_that_cannot_be_pickled_arrives_as_text(caller_of):
    error = caller_of().run(a_call(body=Body(Fails(("this", "that"))), given={}))
    assert (type(error), str(error)) == (TrainingError, "StubbornError: this and that")


@pytest.mark.parametrize(
    ("what", "fault", "message"),
    [
        (
            ray.exceptions.WorkerCrashedError(),
            Exhausted,
            r"^AV of interval 7 in epoch 3 \(apply_vertex of layer 1 \(Mine\)\) was tried 10 times .* more intervals",
        ),
        (ray.exceptions.RaySystemError("the store is gone"), Unavailable, "^Ray lost AV of interval 7 .* gone"),
        (
            ray.exceptions.RayTaskError("f", "trace\nModuleNotFoundError: No module named 'mine'", ImportError()),
            Unavailable,
            "could not begin AV of interval 7 .*: ModuleNotFoundError: No module named 'mine'. Every node needs",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)  # fmt: skip
def test_a_failure_of_ray_is_a_fault_of_the_pool(caller_of, what, fault, message):
    caller = caller_of(held=True)
    caller.submit(a_call())
    caller.twin.tasks[0].fail(what)
    (error,) = caller.wait(1)
    with pytest.raises(fault, match=message):
        raise error


def test_a_body_that_cannot_be_pickled_is_refused_with_its_name(caller_of):
    body = Body(nn.Linear(3, 2), "apply_vertex of layer 1 (Locked)")
    body.module.lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"\(Locked\)\) could not be sent to Ray: .*lock.* use pool='threads'"):
        raise caller_of().run(a_call(body=body))


def test_when_nothing_is_answered_for_too_long_every_open_call_fails_with_the_number_of_free_cores(caller_of):
    caller = caller_of(4, policy=IMPATIENT, held=True)
    caller.submit(a_call())
    (error,) = caller.wait(1)
    with pytest.raises(Unavailable, match=r"answered none of 1 dense tasks for 0.001 s: .* 4 cores, .* 0 free now"):
        raise error
    caller.twin.tasks[0].carry_out()
    caller.pool.close()
    assert caller.answers == [error]
    assert caller.twin.cancelled == [caller.twin.tasks[0].ref]


def test_tasks_of_calls_that_are_cancelled_are_cancelled_and_their_answers_dropped(caller_of):
    caller = caller_of(held=True)
    old, new = [a_call(), a_call()], a_call(given=weights(2.0))
    for call in (*old, new):
        caller.submit(call)
    caller.pool.cancel(old)
    assert caller.twin.cancelled == [task.ref for task in caller.twin.tasks[:2]]
    caller.twin.tasks[0].fail(ray.exceptions.TaskCancelledError())
    for task in caller.twin.tasks[1:]:
        task.carry_out()
    caller.wait(1)
    caller.pool.close()
    (reply,) = caller.answers
    assert torch.equal(reply.outputs[0], dense.run(new).outputs[0])


def test_a_call_that_is_cancelled_while_it_is_sent_is_cancelled_when_its_task_is_known(caller_of):
    caller = caller_of(held=True)
    call, send = a_call(), caller.twin.send

    def cancelled_meanwhile(*arguments):
        caller.pool.cancel([call])
        return send(*arguments)

    caller.twin.send = cancelled_meanwhile
    caller.submit(call)
    assert caller.twin.cancelled == [caller.twin.tasks[0].ref]


def test_a_closed_pool_cancels_what_is_under_way_and_takes_nothing_more(caller_of):
    caller = caller_of(held=True)
    caller.submit(a_call())
    caller.pool.close()
    assert caller.twin.cancelled == [caller.twin.tasks[0].ref]
    caller.twin.tasks[0].carry_out()
    assert caller.answers == []
    with pytest.raises(TrainingError, match="a pool that is closed"):
        caller.submit(a_call())


def group(state="CREATED", **cpus):
    return {
        "state": state,
        "bundles": {k: {"CPU": has} for k, has in enumerate(cpus.values())},
        "bundles_to_node_id": dict(enumerate(cpus)),
    }


@pytest.mark.parametrize(
    ("cores", "groups", "room"),
    [
        ((2, 3), (), ClusterCores(2, 5, 0, 5)),
        ((2, 3), (group(n0=1, n1=1.5),), ClusterCores(2, 5, 2.5, 2)),  # half a core is not used
        ((2, 3), (group("REMOVED", n0=2), group("PENDING", n1=2)), ClusterCores(2, 5, 0, 5)),
        ((2,), (group(n0=1, gone=4),), ClusterCores(1, 2, 1, 1)),
        ((1, 1), (group(n0=1, n1=0.1),), ClusterCores(2, 2, 1.1, 0)),
    ],
)
def test_tasks_may_have_the_whole_cores_that_no_placement_group_holds(cores, groups, room):
    assert ClusterCores.of(InProcessRay(*cores, groups=groups)) == room


def test_without_a_core_for_tasks_a_call_is_refused_at_once_with_what_is_missing(caller_of):
    caller = caller_of(1, 1, groups=(group(n0=1, n1=0.1),), held=True)
    with pytest.raises(ConfigError, match=r"2 nodes with 2 cores, 1.1 of them reserved, .* Add nodes, use fewer"):
        raise caller.run(a_call())
    assert caller.twin.tasks == []


def test_a_pool_reports_its_tasks(caller_of):
    caller, given = caller_of(), weights()
    assert (caller.pool.figures()["calls"], caller.pool.figures()["bytes_in"]) == (0, 0)
    caller.run(a_call(given=given))
    caller.twin.attempt = 2
    caller.run(a_call(given=given))
    figures = caller.pool.figures()
    assert (figures["calls"], figures["relaunches"], figures["invocations"]) == (2, 2, 4)
    assert figures["bytes_in"] == 2 * ROWS.nbytes + sum(each.nbytes for each in given.values())
    assert figures["bytes_out"] == 2 * 4 * 2 * 4
    assert figures["billed_ms"] == 0


@pytest.fixture
def made(monkeypatch):
    """Makes pools by name, on twins."""
    pools = []

    def ray_pool(address, policy):
        pools.append(PoolOnTwin(InProcessRay(2, 1)))
        return pools[-1]

    monkeypatch.setattr(makers.ray, "ray_pool", ray_pool)
    yield lambda **settings: make_pool(PoolRequest(name="ray", **settings), PoolListeners())
    for pool in pools:
        pool.close()


def test_a_pool_made_by_name_runs_two_calls_a_core_unless_functions_is_given(made):
    assert "ray" in POOLS
    assert (type(made().pool), made().pool.limit, made(functions=5).pool.limit) == (LimitedPool, 6, 5)


def test_a_pool_made_by_name_has_the_figures_that_the_report_prints(made):
    names = {"data_path", "functions", "invocations", "cold_starts", "bytes_in", "bytes_out", "billed_ms", "relaunches"}
    assert names | {"duplicates", "duplicate_parts", "timeouts", "losses", "throttled"} <= made().figures().keys()


def test_fusion_can_be_switched_off(made):
    assert isinstance(made(fuse=False).pool, Unfused)


def test_without_ray_the_error_names_the_install_command(monkeypatch):
    monkeypatch.setattr("dorylus.extras.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"^pool='ray' needs ray, zmq, .* not installed: pip install \"dorylus\[ray\]\""
    ):
        check_pool(RunConfig.of(pool="ray"), address=None, is_local=True)


def test_without_a_cluster_the_error_explains_how_to_start_one(monkeypatch):
    def refuse(**_):
        raise ConnectionError("connection refused")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(
        ConfigError,
        match=r"^no Ray cluster on this machine accepts a connection \(connection refused\).*RAY_AUTH_TOKEN.*start one",
    ):
        connected(None)


@pytest.mark.parametrize("given_as", ["argument", "environment"])
def test_an_address_without_a_listener_is_refused_before_ray_waits_for_it(monkeypatch, given_as):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setattr(ray, "init", pytest.fail)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=f"^there is no Ray cluster at {address} .*refused.*: start one with"):
        connected(address if given_as == "argument" else None)
