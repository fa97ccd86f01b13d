"""The functions pool around functions that run in this process: by both data paths, no socket, no process."""

import threading
from concurrent.futures import Future

import linear_functions as linear
import numpy as np
import pytest
import torch
from linear_functions import DEADLINE_S, IN, InProcess, PortsInProcess, Waiting, a_call, assert_same
from scipy.sparse import csr_array

from dorylus.errors import ConfigError, TrainingError
from dorylus.functions.direct_path import Links
from dorylus.pools.functions.functions_pool import SETTLE_S, FunctionsPool, Programs
from dorylus.pools.functions.invocations import FunctionsConfig
from dorylus.pools.pool import Lost, Throttled
from dorylus.saga import dense
from dorylus.saga.dense import Mode
from dorylus.saga.sparse import SparseRows

PATHS = ["inline", "direct"]


def rows_of_a_bigger_matrix(rows):
    """The same rows, sparse. Other rows precede them, so their offsets do not begin at 0."""
    whole = csr_array(np.concatenate([np.full((2, IN), 99, np.float32), rows]))
    return SparseRows(whole.indptr[2:].astype(np.int64), whole.indices.astype(np.int32), whole.data, IN)


@pytest.fixture
def make_pool():
    """Makes pools of functions in this process, and closes them."""
    made = []

    def make(path="inline", export=linear.program_of, note=lambda what, **details: None, bound=None, **settings):
        ports = PortsInProcess()
        options = {name: settings.pop(name) for name in ("payload_limit_bytes", "on_request") if name in settings}
        invoker = InProcess(Links(ports.connect), **options)
        config = FunctionsConfig(data_path=path, **{"max_invocations": 4, **settings})
        programs = Programs(lambda call: call.mode, export)
        pool = FunctionsPool(invoker, programs, config, note, open_ports=ports.open, **(bound or {}))
        pool.invoker, pool.ports = invoker, ports
        made.append(pool)
        return pool

    yield make
    for pool in made:
        pool.close()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("part_rows", [None, 50])
def test_a_function_returns_what_the_call_returns_in_this_process(make_pool, path, mode, part_rows):
    limit = None if part_rows is None else 4096 + 2000
    pool = make_pool(path, part_rows=part_rows, payload_limit_bytes=limit)
    for seed in range(3):
        call = a_call(mode, num_rows=231, seed=seed)
        assert_same(Waiting(pool, call).reply(), dense.run(call))


@pytest.mark.parametrize("path", PATHS)
def test_sparse_rows_travel_as_they_are(make_pool, path):
    dense_rows = torch.randn(20, IN) * (torch.rand(20, IN) < 0.3)
    rows = rows_of_a_bigger_matrix(dense_rows.numpy())
    call = a_call(num_rows=20, inputs=(rows,))
    reply = Waiting(make_pool(path, part_rows=6), call).reply()
    assert_same(reply, dense.run(a_call(num_rows=20, inputs=(dense_rows,))))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("precision", "atol"), [("bf16", 0.1), ("int8", 0.1)])
def test_narrow_rows_give_nearly_the_same_and_weigh_less(make_pool, path, precision, atol):
    call = a_call(Mode.GRADIENT, num_rows=500)
    replies = {}
    for name in ("float32", precision):
        pool = make_pool(path, precision=name)
        replies[name] = Waiting(pool, call).reply(), pool.usage()["AV"]
    wide, narrow = replies["float32"], replies[precision]
    torch.testing.assert_close(narrow[0].input_grads[0], wide[0].input_grads[0], rtol=0.1, atol=atol)
    assert not torch.equal(narrow[0].input_grads[0], wide[0].input_grads[0])
    assert narrow[1].bytes_in < wide[1].bytes_in
    assert narrow[1].bytes_out < wide[1].bytes_out


def test_no_payload_exceeds_the_services_limit(make_pool):
    limit = 4096 + 2500
    pool = make_pool(payload_limit_bytes=limit)
    Waiting(pool, a_call(Mode.LOSS, num_rows=900)).reply()
    assert len(pool.invoker.sizes) > 10
    assert max(pool.invoker.sizes) <= limit


def test_weights_too_big_for_a_payload_are_refused_with_the_cure(make_pool):
    error = Waiting(make_pool(payload_limit_bytes=4150), a_call()).error()
    assert isinstance(error, ConfigError)
    assert "use data_path='direct'" in str(error)


def test_a_program_is_sent_along_only_when_the_function_misses_it(make_pool):
    pool = make_pool()
    for seed in range(3):
        Waiting(pool, a_call(seed=seed)).reply()
    assert ["program.content" in request.arrays for request in pool.invoker.requests] == [False, True, False, False]


def test_on_the_direct_path_no_tensor_is_in_the_payload(make_pool):
    pool = make_pool("direct")
    Waiting(pool, a_call(Mode.GRADIENT)).reply()
    assert [request.arrays for request in pool.invoker.requests] == [{}]


def test_a_program_is_exported_once_for_all_calls_that_share_it(make_pool):
    exported = []
    pool = make_pool(export=lambda call: exported.append(call.mode) or linear.program_of(call))
    for call in [a_call(seed=seed) for seed in range(4)] + [a_call(Mode.LOSS)]:
        Waiting(pool, call).reply()
    assert exported == [Mode.FORWARD, Mode.LOSS]


def test_submitting_does_not_wait_for_an_export(make_pool):
    go = threading.Event()
    pool = make_pool(export=lambda call: go.wait(DEADLINE_S) and linear.program_of(call))
    waiting = Waiting(pool, a_call())
    assert not waiting.answered
    go.set()
    waiting.reply()


def test_a_body_that_cannot_be_exported_fails_its_calls_and_no_others(make_pool):
    def export(call):
        if call.mode is Mode.LOSS:
            raise ConfigError("no such operation")
        return linear.program_of(call)

    pool = make_pool(export=export)
    assert "no such operation" in str(Waiting(pool, a_call(Mode.LOSS)).error())
    Waiting(pool, a_call()).reply()


@pytest.mark.parametrize("mode", list(Mode))
def test_a_call_without_rows_is_answered_in_this_process(make_pool, mode):
    pool = make_pool()
    call = a_call(mode, num_rows=0)
    assert_same(Waiting(pool, call).reply(), dense.run(call))
    assert pool.invoker.requests == []


def test_a_call_that_kept_its_graph_cannot_travel(make_pool):
    error = Waiting(make_pool(), a_call(Mode.GRADIENT, kept=object())).error()
    assert "rematerialize=True" in str(error)


def test_an_error_in_the_function_names_the_body(make_pool):
    pool = make_pool()
    pool.invoker.handler._runner.run = lambda *_: 1 / 0
    error = Waiting(pool, a_call(seed=4)).error()
    assert type(error) is TrainingError
    assert str(error).startswith("a linear body failed on interval 4 in epoch 1, in a function: ZeroDivisionError")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("fault", [Throttled(2.0), Lost("gone")])
def test_a_fault_of_the_service_goes_to_failed_and_the_next_attempt_may_succeed(make_pool, path, fault):
    faults = [fault]

    def fail_once(frame):
        if faults:
            raise faults.pop()

    pool, call = make_pool(path, on_request=fail_once), a_call(Mode.LOSS)
    assert Waiting(pool, call).error() is fault
    assert_same(Waiting(pool, call).reply(), dense.run(call))


class HoldsTheFirst:
    """Blocks the first request until ``let_go`` is set; sets ``entered`` when the request arrives."""

    def __init__(self):
        self.entered, self.let_go = threading.Event(), threading.Event()
        self._first = threading.Lock()

    def __call__(self, frame):
        if self._first.acquire(blocking=False):
            self.entered.set()
            assert self.let_go.wait(DEADLINE_S)


@pytest.mark.parametrize("path", PATHS)
def test_the_attempt_that_completes_a_call_completes_all_its_attempts(make_pool, path):
    hold = HoldsTheFirst()
    pool, call = make_pool(path, on_request=hold), a_call(Mode.GRADIENT)
    slow = Waiting(pool, call)
    assert hold.entered.wait(DEADLINE_S)
    quick = Waiting(pool, call)
    assert quick.reply() is slow.reply()
    hold.let_go.set()
    pool.close()
    assert (slow.answers, quick.answers) == (1, 1)


@pytest.mark.parametrize("path", PATHS)
def test_a_late_attempt_changes_nothing(make_pool, path):
    hold = HoldsTheFirst()
    pool, call = make_pool(path, on_request=hold), a_call(Mode.GRADIENT)
    Waiting(pool, call)
    assert hold.entered.wait(DEADLINE_S)
    expected = dense.run(call)
    reply = Waiting(pool, call).reply()
    call.inputs[0].fill_(float("nan"))  # the caller may reuse the memory of inputs now
    hold.let_go.set()
    pool._calls.shutdown(wait=True)  # until the late attempt has ended
    assert_same(reply, expected)


def test_parts_that_one_attempt_has_brought_are_not_requested_again(make_pool):
    hold = HoldsTheFirst()
    pool = make_pool(payload_limit_bytes=4096 + 2000, on_request=hold, max_invocations=2)
    call = a_call(num_rows=361)
    Waiting(pool, call)
    assert hold.entered.wait(DEADLINE_S)
    others = make_pool(payload_limit_bytes=4096 + 2000)
    Waiting(others, call).reply()
    for more in range(1, 100):  # until the one free thread has fetched all other parts
        Waiting(pool, a_call(seed=more)).reply()
        if len(pool.invoker.requests) >= len(others.invoker.requests) + more:
            break
    num_requests = len(pool.invoker.requests)
    assert num_requests > 4
    assert_same(Waiting(pool, call).reply(), dense.run(call))
    assert len(pool.invoker.requests) == num_requests + 1
    hold.let_go.set()


@pytest.mark.parametrize("path", PATHS)
def test_a_function_that_hangs_is_not_counted_once_its_call_is_tried_again(make_pool, path):
    hold = HoldsTheFirst()
    pool, call = make_pool(path, on_request=hold, bound={"at_once": lambda: 1}), a_call()
    Waiting(pool, call)
    assert hold.entered.wait(DEADLINE_S)
    other = Waiting(pool, a_call(seed=1))
    assert not other.answered
    assert_same(Waiting(pool, call).reply(), dense.run(call))
    assert_same(other.reply(), dense.run(a_call(seed=1)))
    hold.let_go.set()


@pytest.mark.parametrize("path", PATHS)
def test_calls_that_are_cancelled_while_they_wait_are_not_invoked_and_free_their_places(make_pool, path):
    hold = HoldsTheFirst()
    pool = make_pool(path, on_request=hold, bound={"at_once": lambda: 1})
    old = [a_call(seed=seed) for seed in range(4)]
    waiting = [Waiting(pool, call) for call in old]
    assert hold.entered.wait(DEADLINE_S)
    pool.cancel(old)
    new = a_call(seed=9)
    assert_same(Waiting(pool, new).reply(), dense.run(new))  # while the first of the old ones still runs
    invoked = len(pool.invoker.requests)
    hold.let_go.set()
    pool._calls.shutdown(wait=True)
    assert (
        len(pool.invoker.requests) == invoked == (2 if path == "direct" else 3)
    )  # inline: once more, with its program
    assert not any(each.answered for each in waiting)
    assert pool._open == {}


def test_a_function_cannot_fetch_the_rows_of_a_cancelled_call(make_pool):
    hold = HoldsTheFirst()
    pool, call = make_pool("direct", on_request=hold), a_call()
    waiting = Waiting(pool, call)
    assert hold.entered.wait(DEADLINE_S)
    pool.cancel([call])
    assert pool.ports.service._tasks == {}
    hold.let_go.set()
    pool._calls.shutdown(wait=True)
    assert not waiting.answered


def test_a_function_that_has_sent_its_results_but_does_not_end_counts_for_a_moment_only(make_pool):
    now_s, ends = [0.0], threading.Event()
    pool = make_pool("direct", bound={"at_once": lambda: 1, "clock": lambda: now_s[0]})
    invoke = pool.invoker.invoke

    def never_ends(request, timeout_s):
        answer = invoke(request, timeout_s)
        assert ends.wait(DEADLINE_S)
        return answer

    pool.invoker.invoke = never_ends
    Waiting(pool, a_call(seed=0)).reply()
    second = Waiting(pool, a_call(seed=1))
    assert len(pool.invoker.requests) == 1
    now_s[0] = SETTLE_S + 1
    third = Waiting(pool, a_call(seed=2))  # any later event finds the place free
    assert_same(second.reply(), dense.run(a_call(seed=1)))
    ends.set()
    assert_same(third.reply(), dense.run(a_call(seed=2)))


def test_the_weights_of_a_version_are_fetched_once(make_pool):
    pool = make_pool("direct")
    other = {name: weight.detach().clone().requires_grad_() for name, weight in linear.WEIGHTS.items()}
    for seed, weights in enumerate([linear.WEIGHTS, linear.WEIGHTS, other, linear.WEIGHTS]):
        Waiting(pool, a_call(seed=seed, weights=weights)).reply()
    versions = [request.header["weights"] for request in pool.invoker.requests]
    assert versions[0] == versions[1] == versions[3] != versions[2]


def test_a_finished_task_leaves_nothing_behind(make_pool):
    pool = make_pool("direct")
    for mode in Mode:
        Waiting(pool, a_call(mode)).reply()
    assert pool._open == pool._path._in_use == pool.ports.service._tasks == {}


def test_usage_is_counted_by_kind_of_task(make_pool):
    pool = make_pool("direct")
    call = a_call(Mode.GRADIENT, num_rows=50)
    Waiting(pool, call).reply()
    pool._calls.shutdown(wait=True)  # the reply may arrive before the function's timings
    usage = pool.usage()["AV"]
    weights = sum(weight.nbytes for weight in linear.WEIGHTS.values())
    assert usage.invocations == usage.cold_starts == 1
    assert usage.bytes_in > 50 * (IN + linear.OUT) * 4 + weights
    assert usage.bytes_out > 50 * IN * 4 + weights
    assert usage.billed_ms >= 1


def test_the_pool_reports_which_path_it_took(make_pool):
    notes = []
    pool = make_pool("auto", note=lambda what, **details: notes.append((what, details["path"])))
    Waiting(pool, a_call()).reply()
    assert notes == [("data_path", "direct")]
    assert pool.data_path == "direct"


def test_an_error_of_the_reply_callback_is_reported_and_does_not_fail_the_call(make_pool, monkeypatch):
    seen = Future()
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.set_result(args.exc_type))

    def refuse(reply):
        raise ArithmeticError

    make_pool().submit(a_call(), refuse, pytest.fail)
    assert seen.result(DEADLINE_S) is ArithmeticError


def test_a_closed_pool_closes_what_it_opened_and_takes_no_more(make_pool):
    pool = make_pool("direct")
    Waiting(pool, a_call()).reply()
    pool.close()
    assert pool.invoker.closed
    assert pool.ports.closed
    with pytest.raises(TrainingError, match="closed"):
        pool.submit(a_call(), pytest.fail, pytest.fail)


def test_nothing_is_answered_after_closing(make_pool):
    release, entered = threading.Event(), threading.Event()

    def hold(frame):
        entered.set()
        release.wait(DEADLINE_S)

    pool = make_pool(on_request=hold)
    waiting = Waiting(pool, a_call())
    assert entered.wait(DEADLINE_S)
    pool.invoker.close = release.set
    pool.close()
    assert waiting.answers == 0


def test_a_path_that_cannot_be_opened_fails_the_calls_with_the_reason(make_pool):
    def open_ports(config, service):
        raise ConfigError("that port is taken")

    programs, config = Programs(lambda call: call.mode, linear.program_of), FunctionsConfig(data_path="direct")
    pool = FunctionsPool(InProcess(), programs, config, open_ports=open_ports)
    try:
        assert "that port is taken" in str(Waiting(pool, a_call()).error())
    finally:
        pool.close()
