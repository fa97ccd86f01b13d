"""What a forward task hands to its gradient: as little as possible, and enough to avoid a second run of the body."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as f
from small_calls import Runs, Two, call_of
from torch import nn

import dorylus.functions.export as exporting
from dorylus.functions.export import Exports, export
from dorylus.functions.program import ExportedProgram
from dorylus.functions.program_cache import ProgramCache
from dorylus.functions.pure import Pure, signature
from dorylus.functions.runner import Runner
from dorylus.saga import dense
from dorylus.saga.dense import Mode, Saved


class Deep(nn.Module):
    """A norm, an activation that is no output, one that is, and a residual."""

    def __init__(self):
        super().__init__()
        self.into, self.norm, self.out = nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 6)

    def forward(self, x):
        hidden = torch.relu(self.out(f.elu(self.norm(self.into(x)))))
        return hidden + x, hidden


def attends(module, y):
    pairs = y.view(-1, 2, 2)
    return f.scaled_dot_product_attention(pairs, pairs.tanh(), pairs).flatten(1)


def in_place(module, y):
    return f.relu(torch.sin(y).mul_(2), inplace=True) * y


# What is handed over, by name with its width, of y = W x + b of 4 columns and then ...
HANDED = {
    "nothing else": (lambda m, y: y, {}),
    "an output": (lambda m, y: torch.relu(y), {"output.0": 4}),
    "an output in another shape": (lambda m, y: torch.relu(y.view(-1, 2, 2)).flatten(1), {"output.0": 4}),
    "a result that is no output": (lambda m, y: y.exp() * 2, {"saved.0": 4}),
    "one result that is saved twice": (lambda m, y: y.tanh().sin(), {"saved.0": 4}),
    "a mask": (lambda m, y: y.masked_fill(y > 1, 0), {"saved.0": 4}),
    "one number a row": (lambda m, y: y.sum(1).exp()[:, None] * 2, {"saved.0": 1}),
    "rows as columns": (lambda m, y: (m.lin.weight[:, :4] @ y.exp().t()).t(), {"saved.0": 4, "saved.1": 4}),
    "something made of weights": (lambda m, y: y * m.lin.bias.exp(), {"saved.0": 4}),
    "a constant": (lambda m, y: y * (m.count + 2), {}),
    "rows that were cut in two": (lambda m, y: (y.view(-1, 2).exp() * 3).view(-1, 4), {}),
    "places of the largest": (lambda m, y: y.max(1, keepdim=True)[0], {}),
    "attention": (attends, {f"saved.{number}": 4 for number in range(5)}),
    "changes in place": (in_place, {"saved.0": 4, "saved.1": 4}),
}


def forward_of(module, widths, **options):
    return replace(call_of(module, widths, **options), keep=True)


def gradient_of(module, widths, **options):
    call = call_of(module, widths, Mode.GRADIENT, **options)
    return replace(call, kept=Saved(call.inputs, {}))


@pytest.mark.parametrize("what", HANDED)
def test_only_what_the_gradient_cannot_get_otherwise_is_handed_over(what):
    function, handed = HANDED[what]
    forward = Pure(forward_of(Runs(function), [6]))
    assert forward.kept == handed
    assert forward.outputs == ("output.0", *(name for name in handed if name.startswith("saved")))
    gradient = Pure(gradient_of(Runs(function), [6]))
    assert set(gradient.inputs) - {"rows.0", "cotangent.0", "weight.lin.weight", "weight.lin.bias"} == set(handed)


def test_rows_are_handed_over_only_for_requested_gradients():
    trained, frozen = Deep(), Deep().requires_grad_(False)
    assert Pure(forward_of(trained, [6])).kept.keys() == {"output.1", *(f"saved.{number}" for number in range(5))}
    assert Pure(forward_of(frozen, [6], needs_grad=[False])).kept == {}


def named(reply):
    yield from ((f"input_grad.{k}", grad) for k, grad in enumerate(reply.input_grads) if grad is not None)
    yield from ((f"weight_grad.{name}", grad) for name, grad in reply.weight_grads.items())


CASES = {what: (Runs(function), [6], None) for what, (function, _) in HANDED.items()}
CASES |= {f"two {given}": (Two(), (2, 3), given) for given in ([True, True], [True, False], [False, True])}
CASES |= {f"deep {given}": (Deep(), [6], given) for given in ([True, True], [False, True])}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("num_rows", [1, 8])
def test_a_gradient_that_is_handed_what_it_needs_is_the_one_that_runs_the_body(case, num_rows):
    module, widths, cotangents = CASES[case]
    pure = Pure(gradient_of(module, widths, cotangents=cotangents))
    example = pure.example(num_rows, seed=3)
    expected = dict(named(dense.run(example)))
    found = dict(zip(pure.outputs, pure(*pure.arguments(example)), strict=True))
    assert found.keys() == expected.keys()
    for name, want in expected.items():
        torch.testing.assert_close(found[name], want, rtol=1e-6, atol=1e-6)


def test_a_gradient_uses_what_it_was_handed():
    pure = Pure(gradient_of(Runs(HANDED["a result that is no output"][0]), [6]))
    example = pure.example(4)
    twice = replace(example, kept=Saved((), {name: 2 * rows for name, rows in example.kept.arrays.items()}))
    once, doubled = (pure(*pure.arguments(call))[0] for call in (example, twice))
    torch.testing.assert_close(doubled, 2 * once)


def test_calls_that_hand_over_have_programs_of_their_own():
    plain, gradient = call_of(Two(), (2, 3)), call_of(Two(), (2, 3), Mode.GRADIENT)
    for call, handing in (
        (plain, replace(plain, keep=True)),
        (gradient, replace(gradient, kept=Saved(gradient.inputs, {}))),
        (replace(plain, keep=True), replace(plain, keep=True, needs_grad=(True, False))),
    ):
        assert signature(call) != signature(handing)
    assert signature(plain) == signature(replace(plain, needs_grad=(True, False)))


def test_a_program_on_disk_records_what_it_keeps_and_is_not_taken_for_one_that_keeps_nothing(tmp_path, monkeypatch):
    """The operations are the same here: what the gradient needs is the output."""
    translated = []
    made = lambda pure: ExportedProgram.of(b"the same", pure.inputs, pure.outputs, pure.kept)  # noqa: E731
    monkeypatch.setattr(exporting, "translate", lambda pure: translated.append(pure) or made(pure))
    monkeypatch.setattr(exporting, "disagreement", lambda pure, program: None)
    plain = call_of(Runs(HANDED["an output"][0]), [6])
    for _ in range(2):
        exports = Exports(ProgramCache(tmp_path))
        assert exports.program(plain).kept is None
        assert exports.program(replace(plain, keep=True)).kept == {"output.0": 4}
    assert len(translated) == 2


@pytest.fixture(scope="module")
def deep():
    """The forward program that hands over, the gradient's that is handed, and the one that runs the body again."""
    module = Deep()
    gradient = gradient_of(module, [6])
    return export(forward_of(module, [6])), export(gradient), export(replace(gradient, kept=None))


def operations(program):
    return [node.op_type for node in onnx.load_from_string(program.content).graph.node]


def test_a_gradient_that_is_handed_what_it_needs_does_not_run_the_body(deep):
    forward, handed, again = map(operations, deep)
    assert {"Gemm", "LayerNormalization", "Elu", "Relu"} <= set(forward)
    assert set(forward) & {"Gemm", "LayerNormalization", "Elu", "Relu"} <= set(again)
    assert not set(handed) & {"Gemm", "LayerNormalization", "Elu", "Relu"}
    assert len(handed) < len(again)
    assert not {"weight.into.bias", "weight.norm.bias", "weight.out.bias"} & set(deep[1].inputs)


@pytest.mark.parametrize("part_rows", [(7, 7), (5, 9), (1, 20)])
def test_what_parts_of_rows_hand_over_fits_any_other_parts(deep, part_rows):
    """How rows are cut depends on their weight, which is not the same for the gradient."""
    forward, handed, again = deep
    runner = Runner()
    for program in deep:
        runner.load(program.hash, program.content)
    pure = Pure(call_of(Deep(), [6], Mode.GRADIENT))
    given = {n: t.numpy() for n, t in zip(pure.inputs, pure.arguments(pure.example(20)), strict=True)}
    made = runner.run_in_parts(forward.hash, {name: given[name] for name in forward.inputs}, part_rows[0])
    kept = {name: made[name] for name in forward.kept}
    assert {name: array.shape for name, array in kept.items()} == {n: (20, w) for n, w in forward.kept.items()}
    found = runner.run_in_parts(handed.hash, {name: (given | kept)[name] for name in handed.inputs}, part_rows[1])
    expected = runner.run(again.hash, {name: given[name] for name in again.inputs})
    assert found.keys() == expected.keys()
    for name, want in expected.items():
        np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-5)
