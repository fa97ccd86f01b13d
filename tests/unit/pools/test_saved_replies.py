"""Arrays that a forward task saves for its gradient: the reply holds them, and the gradient call carries them."""

from dataclasses import replace

import linear_functions as linear
import numpy as np
import pytest
import torch
from linear_functions import IN, OUT, InProcess, PortsInProcess, Waiting, a_call, assert_same
from pool_doubles import POLICY, Setting
from pool_doubles import a_call as an_empty_call

from dorylus.functions.direct_path import Links
from dorylus.functions.program import ExportedProgram
from dorylus.pools import PoolListeners, PoolRequest, makers
from dorylus.pools.functions import functions_pool as functions
from dorylus.pools.functions.functions_pool import FunctionsPool, Programs
from dorylus.pools.functions.invocations import FunctionsConfig
from dorylus.pools.functions.tasks import Inputs, output_shapes, reply_of
from dorylus.pools.functions.unfused import Unfused
from dorylus.pools.pool import Lost, ThreadsPool
from dorylus.saga import dense
from dorylus.saga.dense import Kept, Mode, Saved

KEPT = {"saved.0": 4, "output.0": OUT}


def test_a_reply_holds_what_the_gradient_reads_and_the_inputs_it_was_made_of():
    call = a_call(num_rows=6)
    arrays = {"output.0": np.ones((6, OUT), np.float32), "saved.0": np.full((6, 4), 2, np.float32)}
    reply = reply_of(call, arrays, KEPT)
    assert reply.kept.inputs is call.inputs
    assert {name: rows.tolist() for name, rows in reply.kept.arrays.items()} == {
        n: a.tolist() for n, a in arrays.items()
    }
    assert reply_of(call, {"output.0": arrays["output.0"]}).kept is None


def a_gradient(num_rows=6, saved_rows=6):
    arrays = {"saved.0": torch.arange(4.0 * saved_rows).view(-1, 4), "output.0": torch.ones(num_rows, OUT)}
    call = a_call(Mode.GRADIENT, num_rows)
    return replace(call, kept=Saved(call.inputs, arrays))


def test_a_gradient_call_carries_saved_arrays_cut_like_its_rows():
    call = a_gradient()
    inputs = Inputs(call, ExportedProgram.of(b"", ("cotangent.0", "saved.0", "output.0"), ("input_grad.0",)))
    part = inputs.part(2, 5)
    assert part.keys() == {"cotangent.0", "saved.0", "output.0"}
    assert part["saved.0"].tolist() == call.kept.arrays["saved.0"][2:5].tolist()


def test_saved_arrays_must_have_as_many_rows_as_the_call():
    with pytest.raises(ValueError, match=r"saved\.0 has 5 rows"):
        Inputs(a_gradient(saved_rows=5), ExportedProgram.of(b"", ("saved.0",), ("input_grad.0",)))


def test_the_sizes_of_parts_count_saved_arrays():
    assert output_shapes(a_call(), ["output.0", "saved.0"], KEPT) == {"output.0": (OUT,), "saved.0": (4,)}


def keeping(call):
    """A forward program whose gradient reads the output."""
    program = linear.program_of(call)
    return replace(program, kept={"output.0": OUT}) if call.mode is Mode.FORWARD else program


@pytest.mark.parametrize("path", ["inline", "direct"])
def test_saved_arrays_come_from_the_attempt_that_completed_the_call(path):
    losses = []

    def lose(frame):
        if losses:
            raise losses.pop()

    ports = PortsInProcess()
    invoker = InProcess(Links(ports.connect), on_request=lose)
    config = FunctionsConfig(data_path=path, max_invocations=2)
    pool = FunctionsPool(invoker, Programs(lambda call: call.mode, keeping), config, open_ports=ports.open)

    def second_attempt(call):
        losses.append(Lost("gone"))
        assert isinstance(Waiting(pool, call).error(), Lost)
        return Waiting(pool, call).reply()

    try:
        forward = second_attempt(a_call(num_rows=8, keep=True))
        assert torch.equal(forward.kept.arrays["output.0"], forward.outputs[0])
        gradient = replace(a_call(Mode.GRADIENT, num_rows=8), kept=forward.kept)
        assert_same(second_attempt(gradient), dense.run(gradient))
    finally:
        pool.close()


def test_saved_arrays_travel_with_every_attempt():
    setting = Setting()
    call = setting.caller.submit(replace(an_empty_call(), kept=Saved((), {})))
    setting.inner.last.failed(Lost("gone"))
    setting.clock.advance(POLICY.backoff_s)
    assert [launched.call is call for launched in setting.inner.launched] == [True, True]


def test_threads_ignore_saved_arrays_and_run_the_body():
    call = a_gradient()
    assert_same(Waiting(ThreadsPool(), call).reply(), dense.run(replace(call, kept=None)))


class Recording(ThreadsPool):
    def __init__(self):
        self.calls = []

    def submit(self, call, done, failed):
        self.calls.append(call)
        super().submit(call, done, failed)


@pytest.mark.parametrize("keep", [False, True])
def test_an_unfused_gradient_gets_what_its_forward_half_kept(keep):
    pool, call = Recording(), a_call(Mode.LOSS)
    assert_same(Waiting(Unfused(pool, keep=keep), call).reply(), dense.run(call))
    forward, gradient = pool.calls
    assert forward.keep is keep
    assert isinstance(gradient.kept, Kept) is keep


@pytest.mark.parametrize(("rematerialize", "keep"), [(True, False), (False, True)])
def test_the_halves_of_an_unfused_call_keep_what_the_pool_keeps(monkeypatch, rematerialize, keep):
    keeps = []
    monkeypatch.setattr(makers, "Unfused", lambda pool, keep: keeps.append(keep) or pool)
    travel = FunctionsConfig(rematerialize=rematerialize)
    request = PoolRequest(name="processes", fuse=False, travel=travel)
    makers.pool_of_functions(InProcess(), request, PoolListeners()).pool.close()
    assert keeps == [keep]


@pytest.mark.parametrize("rematerialize", [True, False])
def test_functions_that_run_the_body_again_use_programs_that_keep_nothing(monkeypatch, rematerialize):
    keeps = []

    class Exports:
        def __init__(self, cache, torch_pools):
            pass

        def program(self, call):
            keeps.append(call.keep)
            return linear.program_of(call)

    monkeypatch.setattr(functions, "Exports", Exports)
    config = FunctionsConfig(data_path="inline", rematerialize=rematerialize, max_invocations=2)
    pool = functions.functions_pool(InProcess(), config)
    try:
        for keep in (True, False):
            Waiting(pool, a_call(num_rows=IN, keep=keep)).reply()
        assert keeps == ([False] if rematerialize else [True, False])
    finally:
        pool.close()
