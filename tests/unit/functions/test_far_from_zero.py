"""Programs stay right where float32 runs out: logits far from zero, as trained models have them."""

import pytest
import torch
import torch.nn.functional as f
from small_calls import Runs, call_of

from dorylus.functions.export import export
from dorylus.functions.pure import Pure
from dorylus.functions.runner import Runner
from dorylus.saga.dense import Mode, Targets


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def compared(call):
    """What a call's program gives, and what torch does, by name."""
    program, pure, runner = export(call), Pure(call), Runner()
    arguments = pure.arguments(call)
    runner.load(program.hash, program.content)
    given = {name: each.detach().numpy() for name, each in zip(pure.inputs, arguments, strict=True)}
    made = runner.run(program.hash, {name: given[name] for name in program.inputs})
    right = pure(*arguments)
    return {name: (torch.from_numpy(made[name]), each) for name, each in zip(pure.outputs, right, strict=True)}


@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.soak), 20.0, 1000.0])
def test_the_loss_of_several_labels_and_its_gradient(scale):
    call = call_of(Runs(lambda module, y: y * scale), (6,), Mode.LOSS, loss="bce")
    assert isinstance(call.targets, Targets)
    for name, (ours, right) in compared(call).items():
        assert torch.isfinite(ours).all(), name
        torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.soak), 100.0])
def test_the_logarithm_of_a_sigmoid_in_a_body(scale):
    call = call_of(Runs(lambda module, y: f.logsigmoid(y * scale)), (6,))
    ours, right = compared(call)["output.0"]
    torch.testing.assert_close(ours, right, rtol=1e-5, atol=1e-5)
