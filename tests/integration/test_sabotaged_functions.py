"""Runs with functions that fail in every way at once, and runs whose service is down."""

import os
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from dense_tasks import assert_equal, fused_task
from function_runs import graph as small
from function_runs import model

import dorylus
from dorylus.functions.deploy.access import AwsAccess
from dorylus.functions.deploy.config import on_this_machine
from dorylus.functions.deploy.local import LocalFunctions
from dorylus.functions.deploy.package import build
from dorylus.pools import ThreadsPool
from dorylus.pools.aws_lambda import LambdaInvoker
from dorylus.pools.functions.functions_pool import functions_pool
from dorylus.pools.functions.invocations import FunctionsConfig
from dorylus.pools.http import HttpInvoker
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import PoolFault
from dorylus.pools.processes import ProcessesInvoker
from dorylus.pools.relaunch import Relaunching
from dorylus.saga import dense
from functions_bench.injected_faults import InjectedFault
from functions_bench.inside import NUM_GARBAGE
from functions_bench.plans import Script, Share
from functions_bench.runs import weights_apart
from functions_bench.saboteur import Saboteur
from functions_bench.services import http_server, invoked_by, made_with, sabotaged_lambda, sabotaged_processes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="functions run on Linux"),
    pytest.mark.timeout(120),
]

SHARE = 0.3  # of all invocations
TOLERANCE = 1e-5
FUNCTIONS = 4
RUN = {"servers": 2, "intervals": 2, "epochs": 2, "eval_every": 0, "lr": 0.02, "seed": 5, "deadline_s": 100}
RUN["rematerialize"] = True  # as other tests do, so that the exported programs are shared
DEADLINE_S = 30.0
# A function gets a second or two for work of milliseconds: enough on a busy machine, and short when it hangs.
TRAVEL = {"timeout_s": 2.0, "part_rows": 40}
POLICY = Policy(attempts=20, first_s=1.2, at_least_s=0.3, at_most_s=5.0, backoff_s=0.02, backoff_at_most_s=0.2)


@pytest.fixture(scope="module")
def faultless():
    """The results of runs without faults, their tasks cut in the same way; these runs also export the programs."""

    @cache
    def run(name, path="inline"):
        with made_with(Policy(), **TRAVEL | {"timeout_s": DEADLINE_S}):
            return dorylus.train(small(), model(name), pool="processes", functions=2, data_path=path, **RUN)

    return run


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """Lambda's stand-in, which also throttles by itself when relaunches and copies are more than it takes at a time."""
    folder = tmp_path_factory.mktemp("sabotaged")
    with sabotaged_lambda(build(on_this_machine()), folder, timeout_s=2, concurrency=FUNCTIONS + 2) as functions:
        yield functions


@pytest.fixture
def on_processes():
    return "processes", ProcessesInvoker(FUNCTIONS)


@pytest.fixture
def on_lambda(stand_in):
    return "lambda-local", LambdaInvoker(stand_in.access, stand_in.config.name)


@pytest.mark.parametrize(
    ("service", "name", "path"),
    [
        ("on_processes", "gcn", "direct"),
        pytest.param("on_processes", "a user's edge layer", "inline", marks=pytest.mark.soak),
        pytest.param("on_lambda", "gcn", "inline", marks=pytest.mark.soak),
        pytest.param("on_lambda", "a user's edge layer", "direct", marks=pytest.mark.soak),
    ],
)
def test_functions_with_faults_train_to_the_weights_of_functions_without(faultless, request, service, name, path):
    expected = faultless(name, path)
    pool, invoker = request.getfixturevalue(service)
    saboteur = Saboteur(invoker, Share(SHARE, seed=1), late_s=1.0)
    with sabotaged_processes(), invoked_by(pool, lambda: saboteur), made_with(POLICY, **TRAVEL):
        result = dorylus.train(small(), model(name), pool=pool, functions=FUNCTIONS, data_path=path, **RUN)
    assert weights_apart(result, expected) < TOLERANCE
    assert result.losses == pytest.approx(expected.losses, abs=TOLERANCE)
    counted = result.pool
    assert set(saboteur.done) == set(InjectedFault)
    assert 0.15 < saboteur.done.total() / saboteur.invocations < 0.45
    assert counted["calls"] == expected.pool["calls"]  # each once, however many attempts it took
    assert counted["relaunches"] > 0
    assert counted["losses"] > 0
    assert counted["throttled"] > 0
    assert counted["duplicates"] > 0


def test_a_plan_injects_every_fault_equally_often_and_the_same_ones_for_the_same_seed():
    first, second = (Share(SHARE, seed=4) for _ in range(2))
    dealt = [first.next() for _ in range(2000)]
    assert dealt == [second.next() for _ in range(2000)]
    counted = Counter(fault for fault in dealt if fault)
    assert counted.total() / len(dealt) == pytest.approx(SHARE, abs=0.05)
    assert set(counted) == set(InjectedFault)
    assert max(counted.values()) - min(counted.values()) <= 1


class ApplyingTwice(ThreadsPool):
    """A pool with one mistake: the gradients of a single call count twice."""

    mistakes_left = 1

    def submit(self, call, done, failed):
        def twice(reply):
            if reply.weight_grads and self.mistakes_left:
                self.mistakes_left -= 1
                reply = replace(reply, weight_grads={name: 2 * grad for name, grad in reply.weight_grads.items()})
            done(reply)

        super().submit(call, twice, failed)


def test_gradients_applied_twice_would_be_seen_in_the_weights(faultless):
    result = dorylus.train(small(), model("gcn"), pool=ApplyingTwice(), **RUN)
    assert weights_apart(result, faultless("gcn")) > 100 * TOLERANCE


class SubmittedCall:
    """One call submitted to a pool, and its answer."""

    def __init__(self, pool, call):
        self._answered, self._reply = threading.Event(), None
        pool.submit(call, self._done, self._done)

    def reply(self):
        assert self._answered.wait(DEADLINE_S)
        if isinstance(self._reply, BaseException):
            raise self._reply
        return self._reply

    def _done(self, reply):
        self._reply = reply
        self._answered.set()


@pytest.fixture
def one_process():
    """Makes pools on one process with scripted faults; a call is retried only after a fault."""
    made = []

    def make(path, script):
        saboteur = Saboteur(ProcessesInvoker(1), script, late_s=0.1)
        functions = functions_pool(saboteur, FunctionsConfig(data_path=path, timeout_s=2.0, part_rows=30))
        made.append(Relaunching(functions, Policy(at_least_s=DEADLINE_S, backoff_s=0.01)))
        return made[-1], functions, saboteur

    with sabotaged_processes():
        yield make
        for pool in made:
            pool.close()


WHAT_IS_COUNTED = {
    InjectedFault.FAIL: "losses",
    InjectedFault.HANG: "losses",
    InjectedFault.CRAWL: None,
    InjectedFault.DIE_MID_TASK: "losses",
    InjectedFault.DIE_BETWEEN: "losses",
    InjectedFault.GARBAGE: "losses",
    InjectedFault.TWICE: None,
    InjectedFault.THROTTLED: "throttled",
}


@pytest.mark.parametrize("path", ["direct", "inline"])
def test_each_fault_costs_a_call_one_attempt_at_most_and_changes_nothing(one_process, path):
    call, _ = fused_task()
    script, expected = Script(), Counter()
    pool, _, saboteur = one_process(path, script)
    SubmittedCall(pool, replace(call)).reply()  # now the process has the program
    for fault, counted in WHAT_IS_COUNTED.items():
        script.then(fault)
        assert_equal(SubmittedCall(pool, replace(call)).reply(), dense.run(call))
        if counted:
            expected += Counter((counted, "relaunches"))
        assert Counter({name: getattr(pool.counts, name) for name in expected}) == expected, fault
    assert saboteur.done == Counter(InjectedFault)


def test_a_function_that_dies_between_its_pushes_has_delivered_all_rows_and_no_gradient(one_process):
    call, _ = fused_task()
    brought = []
    for faults in ([], [InjectedFault.DIE_BETWEEN]):
        pool, functions, _ = one_process("direct", Script(faults))
        assert_equal(SubmittedCall(pool, replace(call)).reply(), dense.run(call))
        pool.close()
        assert pool.counts.losses == len(faults)
        brought.append(sum(usage.bytes_out for usage in functions.usage().values()))
    (rows,) = dense.run(call).input_grads
    answer_bytes = rows.nbytes / 2  # it holds durations, so its size varies
    assert brought[1] - brought[0] == pytest.approx(rows.nbytes, abs=answer_bytes)


@pytest.mark.parametrize("path", ["direct", "inline"])
def test_garbage_of_every_form_is_a_loss(one_process, path):
    call, _ = fused_task()
    forms_at = {3, 5, 7, 10, 12, 14}  # the number of an invocation modulo 6 is the form of its garbage
    faults = [InjectedFault.GARBAGE if number in forms_at else None for number in range(15)]
    pool, _, saboteur = one_process(path, Script(faults))
    while saboteur.invocations < len(faults):
        assert_equal(SubmittedCall(pool, replace(call)).reply(), dense.run(call))
    assert pool.counts.losses == saboteur.done[InjectedFault.GARBAGE] == NUM_GARBAGE == len(forms_at)


class AfterFirstEpoch:
    """A sink that calls back when the first epoch is over."""

    def __init__(self, act):
        self._act = act

    def write(self, record):
        if record["kind"] == "epoch" and record["epoch"] == 1:
            self._act()

    def close(self):
        pass


HASTY = Policy(
    first_s=4.0, at_least_s=0.5, at_most_s=4.0, backoff_s=0.05, backoff_at_most_s=0.5, down_after_s=4.0,
    refused_after_s=1.0,
)  # fmt: skip
CLOSING_S = 6.0  # to save, and to end calls under way, on a busy machine


@pytest.fixture
def stopped_run(tmp_path, faultless):
    """Trains on an invoker until it is given up, and resumes on threads: (fault, epochs done, seconds until then)."""

    def run(invoker, path, go_away=None):
        expected, since = faultless("gcn"), [time.monotonic()]

        def away():
            go_away()
            since.append(time.monotonic())

        with made_with(HASTY), invoked_by("processes", lambda: invoker), pytest.raises(PoolFault) as caught:
            dorylus.train(
                small(), model("gcn"), pool="processes", functions=2, data_path=path, run_dir=tmp_path / "run",
                sinks=[AfterFirstEpoch(away)], **RUN,
            )  # fmt: skip
        took_s = time.monotonic() - since[-1]
        with dorylus.Trainer.resume(tmp_path / "run", small(), model("gcn"), pool="threads") as trainer:
            epochs = trainer.epoch
            result = trainer.run().result()
        assert weights_apart(result, expected) < TOLERANCE
        assert result.losses == pytest.approx(expected.losses, abs=TOLERANCE)
        assert f"The run is saved after epoch {epochs}: " in str(caught.value)
        return str(caught.value), epochs, took_s

    return run


def test_a_service_that_is_down_from_the_start_is_given_up_soon(stopped_run):
    down = LambdaInvoker(AwsAccess("us-east-1", "http://127.0.0.1:9"))
    fault, epochs, took_s = stopped_run(down, "inline")
    assert "Could not connect to the endpoint" in fault
    assert epochs == 0
    assert took_s < HASTY.refused_after_s + CLOSING_S


def test_a_service_that_dies_in_the_middle_of_a_run_is_given_up_within_its_time(stopped_run):
    with LocalFunctions() as service:
        invoker = LambdaInvoker(service.access, service.config.name)
        fault, epochs, took_s = stopped_run(invoker, "direct", service.close)
    assert "Nothing has succeeded for 4" in fault
    assert epochs == 1
    assert took_s < HASTY.down_after_s + CLOSING_S


def test_a_service_that_falls_silent_in_the_middle_of_a_run_is_given_up_within_its_time(stopped_run):
    with http_server() as server:
        fault, epochs, took_s = stopped_run(
            HttpInvoker(server.url), "inline", lambda: os.kill(server.pid, signal.SIGSTOP)
        )
        os.kill(server.pid, signal.SIGCONT)
    assert "the last attempt ended with no answer within" in fault
    assert epochs == 1
    assert took_s < HASTY.down_after_s + CLOSING_S


def test_a_service_that_throttles_every_call_is_given_up_within_its_time(stopped_run):
    full = Saboteur(ProcessesInvoker(1), Share(1.0, faults=[InjectedFault.THROTTLED]))
    fault, epochs, took_s = stopped_run(full, "inline")
    assert "the last attempt ended with Throttled" in fault
    assert epochs == 0
    assert took_s < HASTY.down_after_s + CLOSING_S
