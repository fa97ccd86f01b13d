"""The traced function returns what dense tasks return, and names its outputs."""

import pytest
import torch
from small_calls import ROWS, Runs, Two, call_of

from dorylus.functions.pure import Pure, signature
from dorylus.saga.dense import IGNORED, Call, Mode, run

WIDTHS = (2, 3)


def named(call: Call) -> dict[str, torch.Tensor]:
    pure = Pure(call)
    made = pure(*pure.arguments(call))
    return dict(zip(pure.outputs, made, strict=True))


def assert_as_dense(call: Call) -> dict[str, torch.Tensor]:
    reply, made = run(call), named(call)
    expected = {f"output.{k}": output for k, output in enumerate(reply.outputs)}
    expected |= {f"input_grad.{k}": grad for k, grad in enumerate(reply.input_grads) if grad is not None}
    expected |= {f"weight_grad.{name}": grad for name, grad in reply.weight_grads.items()}
    if call.mode is Mode.LOSS:
        expected["loss"] = torch.tensor(reply.loss)
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[name], expected[name]) for name in expected)
    return made


def test_the_outputs_of_a_forward_task():
    assert list(assert_as_dense(call_of(Two(), WIDTHS))) == ["output.0", "output.1"]


@pytest.mark.parametrize("cotangents", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("needs_grad", [(True, True), (True, False), (False, True), (False, False)])
def test_the_gradients_that_are_needed_and_reached(needs_grad, cotangents):
    made = assert_as_dense(call_of(Two(), WIDTHS, Mode.GRADIENT, needs_grad=needs_grad, cotangents=cotangents))
    assert ("input_grad.1" in made) == (needs_grad[1] and cotangents[0])
    assert ("weight_grad.mix.weight" in made) == cotangents[0]
    assert not {"weight_grad.frozen", "weight_grad.idle"} & made.keys()


@pytest.mark.parametrize("loss", ["cross_entropy", "bce"])
def test_the_loss_and_its_gradients(loss):
    made = assert_as_dense(call_of(Two(), WIDTHS, Mode.LOSS, loss=loss, needs_grad=(True, False)))
    assert {"loss", "input_grad.0", "weight_grad.mix.weight"} < made.keys()


def test_a_task_with_nothing_to_give_back_has_no_outputs():
    frozen = Two().requires_grad_(False)
    assert named(call_of(frozen, WIDTHS, Mode.GRADIENT, needs_grad=(False, False))) == {}


def test_an_output_that_is_an_input_is_a_tensor_of_its_own():
    given = torch.randn(4, 6)
    pure = Pure(call_of(torch.nn.Identity(), [6]))
    (made,) = pure(given)
    assert torch.equal(made, given)
    assert made.data_ptr() != given.data_ptr()


def test_an_example_has_labels_that_are_ignored_and_weights_that_are_not_zero():
    pure = Pure(call_of(Runs(lambda module, y: y), [6], Mode.LOSS))
    example = pure.example(50)
    assert IGNORED in example.targets.labels
    assert example.inputs[0].shape == (50, 6)
    assert all(bool((weight != 0).all()) for weight in example.weights.values())
    again, other = pure.example(50), pure.example(50, seed=1)
    assert torch.equal(example.inputs[0], again.inputs[0])
    assert not torch.equal(example.inputs[0], other.inputs[0])


def test_calls_share_a_signature_whatever_their_rows():
    call = call_of(Two(), WIDTHS, Mode.GRADIENT)
    other = Call(
        call.task, call.mode, call.body, dict(call.weights), tuple(x[:2] for x in call.inputs), call.needs_grad,
        tuple(c[:2] for c in call.cotangents),
    )  # fmt: skip
    assert signature(call) == signature(other)
    assert hash(signature(call)) == hash(signature(other))


def test_what_makes_another_program_makes_another_signature():
    module = Two()
    frozen = Two()
    frozen.mix.requires_grad_(False)
    calls = [
        call_of(module, WIDTHS),
        call_of(module, WIDTHS, Mode.GRADIENT),
        call_of(module, WIDTHS, Mode.GRADIENT, needs_grad=(True, False)),
        call_of(module, WIDTHS, Mode.GRADIENT, cotangents=(True, False)),
        call_of(module, WIDTHS, Mode.LOSS),
        call_of(module, WIDTHS, Mode.LOSS, loss="bce"),
    ]
    body = calls[0].body
    same_body = [Call(c.task, c.mode, body, c.weights, c.inputs, c.needs_grad, c.cotangents, c.targets) for c in calls]
    thawed = {name: weight.detach().requires_grad_() for name, weight in calls[1].weights.items()}
    same_body.append(Call(body=body, task=calls[1].task, mode=Mode.GRADIENT, weights=thawed, inputs=calls[1].inputs,
                          needs_grad=calls[1].needs_grad, cotangents=calls[1].cotangents))  # fmt: skip
    assert len({signature(call) for call in same_body}) == len(same_body)
    assert signature(call_of(module, WIDTHS, num_rows=ROWS)) != signature(call_of(module, WIDTHS, num_rows=ROWS))
