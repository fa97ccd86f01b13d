import pytest
import torch
import torch.nn.functional as f
from torch import nn

import dorylus
from dorylus.errors import ConfigError
from dorylus.pipeline import Kind, Task
from dorylus.saga import GAT, GCN, GIN, SAGE, Savings, lower
from dorylus.saga.dense import IGNORED, Call, Mode, Targets, loss_sum, run
from dorylus.saga.stages import Body, Loss

TASK = Task(epoch=0, phase=0, interval=0, step=0, kind=Kind.APPLY_VERTEX)
ROWS = 7


class Two(nn.Module):
    """Two inputs, two outputs, a frozen weight, and an unused weight."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(5, 3)
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.idle = nn.Parameter(torch.randn(2))

    def forward(self, x, y):
        h = torch.tanh(self.mix(torch.cat([x, y], 1)))
        return h * self.frozen, h.sum(1, keepdim=True)


@pytest.fixture
def case():
    """(body, weights as leaves, inputs)."""
    torch.manual_seed(0)
    body = Body(Two())
    weights = {n: p.detach().clone().requires_grad_(p.requires_grad) for n, p in body.module.named_parameters()}
    return body, weights, (torch.randn(ROWS, 2), torch.randn(ROWS, 3))


def call(case, mode, **more):
    body, weights, inputs = case
    return Call(TASK, mode, body, weights, inputs, needs_grad=(True, False), **more)


def cotangents():
    torch.manual_seed(1)
    return torch.randn(ROWS, 3), torch.randn(ROWS, 1)


def test_a_forward_call_gives_the_bodys_outputs(case):
    _, weights, inputs = case
    reply = run(call(case, Mode.FORWARD))
    h = torch.tanh(f.linear(torch.cat(inputs, 1), weights["mix.weight"], weights["mix.bias"]))
    assert torch.equal(reply.outputs[0], (h * weights["frozen"]).detach())
    assert torch.equal(reply.outputs[1], h.sum(1, keepdim=True).detach())
    assert reply.kept is None
    assert not any(output.requires_grad for output in reply.outputs)


def test_a_kept_graph_changes_no_output_and_none_leaks_out(case):
    plain, kept = run(call(case, Mode.FORWARD)), run(call(case, Mode.FORWARD, keep=True))
    assert all(torch.equal(a, b) for a, b in zip(plain.outputs, kept.outputs, strict=True))
    assert not any(output.requires_grad for output in kept.outputs)
    assert kept.kept is not None


def test_gradients_of_a_kept_graph_equal_rematerialised_ones_bit_for_bit(case):
    kept = run(call(case, Mode.FORWARD, keep=True)).kept
    fresh = run(call(case, Mode.GRADIENT, cotangents=cotangents()))
    reused = run(call(case, Mode.GRADIENT, cotangents=cotangents(), kept=kept))
    assert torch.equal(fresh.input_grads[0], reused.input_grads[0])
    assert fresh.weight_grads.keys() == reused.weight_grads.keys() == {"mix.weight", "mix.bias"}
    assert all(torch.equal(fresh.weight_grads[name], reused.weight_grads[name]) for name in fresh.weight_grads)


class Counted(nn.Module):
    """Counts how often it is run, over all its copies."""

    runs = 0

    def forward(self, x):
        Counted.runs += 1
        return x * 2


@pytest.mark.parametrize("keep", [False, True])
def test_a_kept_graph_saves_running_the_body_again(keep):
    Counted.runs, body, inputs = 0, Body(Counted()), (torch.randn(ROWS, 2),)
    kept = run(Call(TASK, Mode.FORWARD, body, {}, inputs, needs_grad=(True,), keep=keep)).kept
    ones = (torch.ones(ROWS, 2),)
    reply = run(Call(TASK, Mode.GRADIENT, body, {}, inputs, needs_grad=(True,), cotangents=ones, kept=kept))
    assert torch.equal(reply.input_grads[0], torch.full((ROWS, 2), 2.0))
    assert Counted.runs == (1 if keep else 2)


def test_gradients_are_autograds(case):
    body, weights, (x, y) = case
    x = x.clone().requires_grad_()
    outputs = body(weights, (x, y))
    sources = [x, weights["mix.weight"], weights["mix.bias"]]
    expected = torch.autograd.grad(outputs, sources, cotangents())
    reply = run(call(case, Mode.GRADIENT, cotangents=cotangents()))
    found = [reply.input_grads[0], reply.weight_grads["mix.weight"], reply.weight_grads["mix.bias"]]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_only_selected_inputs_get_a_gradient(case):
    assert run(call(case, Mode.GRADIENT, cotangents=cotangents())).input_grads[1] is None


def test_an_output_without_cotangent_counts_as_nothing(case):
    first, second = cotangents()
    alone = run(call(case, Mode.GRADIENT, cotangents=(None, second)))
    zeros = run(call(case, Mode.GRADIENT, cotangents=(torch.zeros_like(first), second)))
    assert torch.allclose(alone.input_grads[0], zeros.input_grads[0], atol=1e-7)


def test_no_cotangent_at_all_gives_no_gradient(case):
    reply = run(call(case, Mode.GRADIENT, cotangents=(None, None)))
    assert reply.input_grads == (None, None)
    assert reply.weight_grads == {}


def test_the_weights_and_inputs_of_a_call_are_left_alone(case):
    _, weights, inputs = case
    before = [tensor.detach().clone() for tensor in (*weights.values(), *inputs)]
    run(call(case, Mode.GRADIENT, cotangents=cotangents()))
    assert all(torch.equal(a, b) for a, b in zip(before, (*weights.values(), *inputs), strict=True))
    assert all(weight.grad is None for weight in weights.values())
    assert not any(x.requires_grad for x in inputs)


@pytest.mark.parametrize(
    "layer",
    [GCN(6, 4), SAGE(6, 4), GIN(6, 4, train_eps=True), GAT(6, 4, heads=2), GCN(6, 6, residual=True, layer_norm=True)],
    ids=lambda layer: type(layer).__name__,
)
def test_the_losses_of_parts_of_the_rows_add_up_to_the_whole(layer):
    """The fused last task, run on two cuts of the rows, against autograd over all of them at once."""
    plan = lower(dorylus.Program([layer]), sparse_features=False, training=True, savings=Savings())
    stage = plan.stages[-1]
    assert isinstance(stage, Loss)
    torch.manual_seed(0)
    inputs = [torch.randn(ROWS, slot.columns) for slot in stage.inputs]
    weights = {name: p.detach().clone().requires_grad_() for name, p in stage.body.module.named_parameters()}
    labels = torch.tensor([0, 1, IGNORED, 2, 3, 0, IGNORED])
    whole = [x.clone().requires_grad_() for x in inputs]
    loss = f.cross_entropy(stage.body(weights, tuple(whole))[0], labels, ignore_index=IGNORED)
    expected = torch.autograd.grad(loss, [*whole, *weights.values()], allow_unused=True)

    replies = []
    for rows in (slice(0, 3), slice(3, ROWS)):
        targets = Targets("cross_entropy", labels[rows], 5.0)
        part = tuple(x[rows] for x in inputs)
        needs_grad = (True,) * len(part)
        replies.append(run(Call(TASK, Mode.LOSS, stage.body, weights, part, needs_grad=needs_grad, targets=targets)))
    assert sum(reply.loss for reply in replies) == pytest.approx(float(loss.detach()), rel=1e-6)
    for k in range(len(inputs)):
        found = torch.cat([reply.input_grads[k] for reply in replies])
        torch.testing.assert_close(found, expected[k], rtol=1e-5, atol=1e-7)
    for name, grad in zip(weights, expected[len(inputs) :], strict=True):
        if grad is not None:
            total = replies[0].weight_grads[name] + replies[1].weight_grads[name]
            torch.testing.assert_close(total, grad, rtol=1e-5, atol=1e-6)


def test_rows_without_a_label_have_no_part_in_the_loss():
    logits = torch.randn(4, 3)
    labels = torch.tensor([2, IGNORED, 0, IGNORED])
    assert loss_sum("cross_entropy", logits, labels) == f.cross_entropy(logits[[0, 2]], labels[[0, 2]], reduction="sum")


def test_many_labels_are_compared_class_by_class():
    logits, labels = torch.randn(4, 3), torch.randint(0, 2, (4, 3)).float()
    expected = f.binary_cross_entropy_with_logits(logits[:2], labels[:2], reduction="sum")
    labels[2:] = IGNORED
    torch.testing.assert_close(loss_sum("bce", logits, labels), expected)


def test_no_labelled_row_gives_no_loss():
    logits = torch.randn(2, 3, requires_grad=True)
    loss = loss_sum("cross_entropy", logits, torch.tensor([IGNORED, IGNORED]))
    assert float(loss.detach()) == 0
    assert torch.equal(torch.autograd.grad(loss, logits)[0], torch.zeros(2, 3))


def test_an_unknown_loss_is_refused_with_the_cure():
    with pytest.raises(ConfigError, match="use 'cross_entropy'"):
        loss_sum("hinge", torch.zeros(1, 2), torch.zeros(1))
