import pytest
import torch
from torch import nn

import dorylus
from dorylus.pipeline import Kind, Need, Scope
from dorylus.saga import Savings, lower
from dorylus.saga.columns import LINE, BlocksBody, block_columns, can_split, in_blocks
from dorylus.saga.stages import ApplyVertex, Gather, Loss, Scatter
from dorylus.saga.table import steps_of

WIDTHS = (40, 24)
RECIPES = {
    "gcn": dorylus.gcn(hidden=[40, 36], dropout=0.5),
    "gcn residual": dorylus.gcn(hidden=[40, 40], dropout=0.0, residual=True, layer_norm=True),
    "sage": dorylus.sage(hidden=[40, 33], dropout=0.5),
    "sage max": dorylus.sage(hidden=[40, 33], aggregator="max", dropout=0.5),
    "gin": dorylus.gin(hidden=[40, 20], dropout=0.5),
}


def plan_of(name, *, training=True):
    program = RECIPES[name].build(*WIDTHS, seed=1)
    return program, lower(program, sparse_features=False, training=training, savings=Savings())


def gathers(plan):
    return [stage for stage in plan.stages if isinstance(stage, Gather)]


def bodies(plan):
    return [stage for stage in plan.stages if isinstance(stage, ApplyVertex | Loss)]


@pytest.mark.parametrize(
    ("columns", "blocks", "widest"),
    [
        (40, 1, 40),
        (40, 2, 32),
        (40, 3, 16),
        (48, 3, 16),
        (64, 3, 32),
        (100, 2, 64),
        (17, 2, 16),
        (17, 99, 16),
        (5, 1, 5),
    ],
)
def test_blocks_are_whole_cache_lines_wide(columns, blocks, widest):
    assert block_columns(columns, blocks) == widest
    assert widest == columns or widest % LINE == 0


def test_one_block_is_the_plan_as_it_was():
    _, plan = plan_of("gcn")
    assert in_blocks(plan, 1) is plan
    assert not plan.parts


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("blocks", [2, 3, 9])
def test_blocks_stand_side_by_side_and_make_up_the_matrix(name, blocks):
    _, plan = plan_of(name)
    cut = in_blocks(plan, blocks)
    assert cut.parts
    for slot, parts in cut.parts.items():
        assert [part.first_column for part in parts] == [sum(p.columns for p in parts[:k]) for k in range(len(parts))]
        assert sum(part.columns for part in parts) == slot.columns
        assert 1 < len(parts) <= blocks
        assert len({part.name for part in parts}) == len(parts)
        same = [(part.level, part.layer, part.dropout, part.gathered, part.needs_grad, part.source) for part in parts]
        assert set(same) == {(slot.level, slot.layer, slot.dropout, slot.gathered, slot.needs_grad, slot.source)}
        assert all(part.first_column % 4 == 0 for part in parts)  # dropout requires it


@pytest.mark.parametrize("name", RECIPES)
def test_no_stage_reads_a_split_matrix_as_a_whole(name):
    _, plan = plan_of(name)
    cut = in_blocks(plan, 2)
    seen = set()
    for stage in cut.stages:
        if isinstance(stage, Scatter):
            seen.update(stage.slots)
        elif isinstance(stage, ApplyVertex):
            seen.update((*stage.inputs, *stage.outputs))
        elif isinstance(stage, Loss):
            seen.update(stage.inputs)
        elif isinstance(stage, Gather) and stage.output.source != "static":
            seen.update((*stage.inputs, stage.output))
    assert not seen & set(cut.parts)
    assert {part for parts in cut.parts.values() for part in parts} <= seen


@pytest.mark.parametrize("name", RECIPES)
def test_each_block_is_gathered_after_the_one_before(name):
    _, plan = plan_of(name)
    cut = in_blocks(plan, 3)
    for stage in gathers(plan):
        parts = cut.parts.get(stage.output)
        if parts is None:
            continue
        mine = [each for each in gathers(cut) if each.output in parts]
        assert [each.output for each in mine] == list(parts)
        assert [each.inputs for each in mine] == [(part,) for part in cut.parts[stage.inputs[0]]]
        assert [each.after for each in mine] == [None, *mine[:-1]]
        assert all(each.layer is stage.layer for each in mine)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("training", [False, True])
def test_weights_keep_their_names_and_every_body_its_label(name, training):
    program, plan = plan_of(name, training=training)
    cut = in_blocks(plan, 2)
    for mine, theirs in zip(bodies(cut), bodies(plan), strict=True):
        assert mine.body.weight_names == theirs.body.weight_names
        assert mine.body.label == theirs.body.label
    named = {weight for stage in bodies(cut) for weight in stage.body.weight_names}
    assert named == {weight for weight, _ in program.named_parameters()}


@pytest.mark.parametrize("name", RECIPES)
def test_a_body_makes_the_same_of_blocks_as_of_whole_rows(name):
    program, plan = plan_of(name)
    cut = in_blocks(plan, 2)
    weights, generator = dict(program.named_parameters()), torch.Generator().manual_seed(0)
    for mine, theirs in zip(bodies(cut), bodies(plan), strict=True):
        rows = [torch.randn(5, slot.columns, generator=generator) for slot in theirs.inputs]
        parts = [
            row[:, part.first_column : part.first_column + part.columns]
            for slot, row in zip(theirs.inputs, rows, strict=True)
            for part in cut.parts.get(slot, (slot,))
        ]
        assert [part.shape[1] for part in parts] == [slot.columns for slot in mine.inputs]
        found, expected = mine.body(weights, tuple(parts)), theirs.body(weights, tuple(rows))
        if isinstance(mine, ApplyVertex):
            assert [each.shape[1] for each in found] == [slot.columns for slot in mine.outputs]
        torch.testing.assert_close(torch.cat(found, 1), torch.cat(expected, 1), rtol=0, atol=0)


def test_a_body_in_blocks_takes_its_weights_with_it_when_it_is_copied():
    inner = nn.Sequential(nn.Linear(4, 6))
    body = BlocksBody(inner, (2,), ((2, 4),))
    assert [name for name, _ in body.named_parameters()] == ["0.weight", "0.bias"]
    x = torch.randn(3, 4)
    first, second = body(x[:, :1], x[:, 1:])
    torch.testing.assert_close(torch.cat([first, second], 1), inner(x))
    assert (first.shape, second.shape) == ((3, 2), (3, 4))


def test_narrow_matrices_static_gathers_and_those_over_edges_or_attention_stay_whole():
    def found(recipe, classes=5):
        program = recipe.build(40, classes)
        return gathers(lower(program, sparse_features=False, training=True, savings=Savings()))

    static, narrow = found(dorylus.gcn(hidden=40, dropout=0.0))
    assert static.output.source == "static"
    assert not can_split(static)
    assert narrow.output.columns <= LINE
    assert not can_split(narrow)
    assert not any(can_split(stage) for stage in found(dorylus.gat(hidden=20, heads=2)))
    assert all(can_split(stage) for stage in found(dorylus.sage(hidden=40, dropout=0.5), 24))


@pytest.mark.parametrize("name", RECIPES)
def test_every_gather_that_can_be_is_cut_and_no_other(name):
    _, plan = plan_of(name)
    cut = in_blocks(plan, 2)
    able = {stage.output for stage in gathers(plan) if can_split(stage)}
    assert {stage.output for stage in gathers(plan)} & set(cut.parts) == able


@pytest.mark.parametrize("blocks", [1, 2])
def test_results_of_a_pass_are_named_as_they_are_stored(blocks):
    _, training = plan_of("gcn")
    _, evaluation = plan_of("gcn", training=False)
    cut = in_blocks(evaluation, blocks)
    last = evaluation.layer_outputs[-1]
    assert in_blocks(training, blocks).results == frozenset()
    assert cut.results == set(cut.parts.get(last, (last,)))


@pytest.mark.parametrize("name", RECIPES)
def test_the_gathers_of_blocks_wait_for_every_interval_of_the_block_before(name):
    _, plan = plan_of(name)
    found = steps_of(in_blocks(plan, 3), backward=True)
    number = {
        (step.kind, stage): k for k, (step, stage) in enumerate(zip(found.table.steps, found.stages, strict=True))
    }
    chained = [stage for stage in found.stages if isinstance(stage, Gather) and stage.after is not None]
    assert chained
    for stage in chained:
        forward = found.table.steps[number[Kind.GATHER, stage]].needs
        assert Need(number[Kind.GATHER, stage.after], Scope.EVERY) in forward
        if stage.output.needs_grad:
            backward = found.table.steps[number[Kind.GRAD_GATHER, stage.after]].needs
            assert Need(number[Kind.GRAD_GATHER, stage], Scope.EVERY) in backward


@pytest.mark.parametrize("name", RECIPES)
def test_all_blocks_are_published_before_the_first_of_them_is_gathered_back(name):
    _, plan = plan_of(name)
    cut = in_blocks(plan, 3)
    found = steps_of(cut, backward=True)
    pairs = list(zip(found.table.steps, found.stages, strict=True))
    for stage in gathers(plan):
        parts = cut.parts.get(stage.output, ())
        mine = [(k, step.kind) for k, (step, at) in enumerate(pairs) if isinstance(at, Gather) and at.output in parts]
        scatters = [k for k, kind in mine if kind is Kind.GRAD_SCATTER]
        backs = [k for k, kind in mine if kind is Kind.GRAD_GATHER]
        assert len(scatters) == len(backs) == (len(parts) if stage.output.needs_grad else 0)
        assert not scatters or max(scatters) < min(backs)


@pytest.mark.parametrize("name", RECIPES)
def test_every_step_waits_only_for_earlier_ones(name):
    _, plan = plan_of(name)
    for backward in (False, True):
        steps = steps_of(in_blocks(plan, 3), backward=backward).table.steps
        assert all(need.step < k for k, step in enumerate(steps) for need in step.needs)
