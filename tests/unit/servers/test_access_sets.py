import pytest
from small_shards import Messages

import dorylus
from dorylus.pipeline import Kind
from dorylus.saga import Savings, lower
from dorylus.saga.columns import in_blocks
from dorylus.saga.stages import ApplyEdge, ApplyVertex, Gather, Loss, Scatter, Slot
from dorylus.saga.table import steps_of
from dorylus.servers.graph.access_sets import FEATURES, Access, access_sets
from dorylus.servers.graph.pass_context import Extra, Grad, Published

PROGRAMS = {
    "gcn": dorylus.gcn(hidden=[40, 36], dropout=0.5).build(40, 24),
    "sage max": dorylus.sage(hidden=40, aggregator="max", dropout=0.5).build(40, 24),
    "gin": dorylus.gin(hidden=40, dropout=0.0).build(40, 24),
    "gat": dorylus.gat(hidden=8, heads=2).build(40, 24),
    "edges": dorylus.Program([Messages(40, 36), Messages(36, 24)]),
}

PUBLISHED = {
    "gcn": ["cotangent"],
    "gin": ["cotangent"],
    "sage max": ["share", "out"],
    "gat": ["cotangent", "delta", "lse", "s_dst"],
}
KEPT = {"sage max": ["ties"], "gat": ["lse", "a_pos", "out_pos"]}


def touched(name, blocks=1, *, backward=True):
    """(kind, stage, touch) of every step."""
    plan = lower(PROGRAMS[name], sparse_features=False, training=backward, savings=Savings())
    steps = steps_of(in_blocks(plan, blocks), backward=backward)
    kinds = [step.kind for step in steps.table.steps]
    return list(zip(kinds, steps.stages, access_sets(steps), strict=True))


def test_rows_are_those_read_and_written_each_once():
    assert Access(("a", "b"), ("b", "c"), ("d",)).rows == ("a", "b", "c")
    assert Access().rows == ()


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_dense_steps_read_their_inputs_and_the_cotangents_of_their_outputs(name, blocks):
    for kind, stage, touch in touched(name, blocks):
        if isinstance(stage, ApplyVertex | Loss):
            assert set(stage.inputs) <= set(touch.reads)
            assert touch.wholes == ()
        if kind is Kind.GRAD_APPLY_VERTEX:
            assert {Grad(slot) for slot in stage.outputs} <= set(touch.reads)
        if kind is Kind.APPLY_VERTEX:
            assert set(touch.writes) == {slot for slot in stage.outputs if not slot.gathered}


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_scatter_writes_the_gathered_matrices(name, blocks):
    found = [(stage, touch) for _, stage, touch in touched(name, blocks) if isinstance(stage, Scatter)]
    assert found
    for stage, touch in found:
        assert touch.writes == stage.slots
        assert touch.reads == ((FEATURES,) if stage.slots[0].source == "features" else ())


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", ["gcn", "sage max", "gin", "gat"])
def test_a_gather_reads_all_rows_of_its_inputs_and_writes_its_own(name, blocks):
    for kind, stage, touch in touched(name, blocks):
        if kind is Kind.GATHER:
            assert set(touch.wholes) == {slot for slot in stage.inputs if slot.gathered}
            assert set(touch.reads) == {slot for slot in stage.inputs if not slot.gathered}
            assert stage.output in touch.writes


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", ["gcn", "sage max", "gin", "gat"])
def test_published_matrices_are_read_completely_by_the_gradient_gather(name, blocks):
    scattered = gathered = 0
    for kind, stage, touch in touched(name, blocks):
        if isinstance(stage, Gather) and kind is Kind.GRAD_SCATTER:
            published = {each for each in touch.writes if isinstance(each, Published)}
            assert published == {Published(stage.output, what) for what in PUBLISHED[name]}
            assert set(touch.writes) - published == {Grad(slot) for slot in stage.inputs[2:]}  # a destination's score
            assert touch.wholes == ()
            scattered += 1
        if kind is Kind.GRAD_GATHER:
            assert set(touch.wholes) == {Published(stage.output, what) for what in PUBLISHED[name]}
            assert set(touch.writes) == {Grad(slot) for slot in stage.inputs[:2]}
            gathered += 1
    assert scattered == gathered > 0


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", ["gcn", "sage max", "gin", "gat"])
def test_only_gradients_that_need_values_read_them_and_only_those_they_need(name, blocks):
    for kind, stage, touch in touched(name, blocks):
        if not isinstance(stage, Gather):
            continue
        kept = {Extra(stage.output, what) for what in KEPT.get(name, ())}
        if kind is Kind.GATHER:
            assert set(touch.writes) == {stage.output} | kept
        if kind is Kind.GRAD_SCATTER:
            score = set(stage.inputs[2:])
            assert set(touch.reads) == ({stage.output} | kept | score if kept else set())
        if kind is Kind.GRAD_GATHER:
            values = {each for each in touch.reads if isinstance(each, Slot)}
            assert values == (set(stage.inputs[:2]) if kept else set())


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize(("name", "waits"), [("gcn", False), ("gat", False), ("gin", True), ("sage max", True)])
def test_a_gradient_gather_adds_to_what_a_dense_step_wrote_where_its_rows_have_another_reader(name, waits, blocks):
    begun, gathered = set(), set()
    for kind, stage, touch in touched(name, blocks):
        grads = {each for each in touch.writes if isinstance(each, Grad)}
        if isinstance(stage, ApplyVertex | Loss):
            assert grads <= set(map(Grad, stage.inputs))
            begun |= grads
        if kind is Kind.GRAD_GATHER:
            read = {each for each in touch.reads if isinstance(each, Grad)}
            assert read <= begun & grads
            gathered |= read
    assert bool(gathered) is waits
    assert gathered <= begun


def test_edges_read_both_ends_whole_and_add_to_all_rows_of_their_cotangents():
    seen = set()
    for kind, stage, touch in touched("edges"):
        if isinstance(stage, ApplyEdge):
            ends = (stage.source, stage.destination)
            assert touch.wholes == (tuple(map(Grad, ends)) if kind is Kind.GRAD_SCATTER else ends)
            seen.add(kind)
        elif isinstance(stage, Gather):
            assert touch.wholes == ()
    assert seen == {Kind.APPLY_EDGE, Kind.GRAD_APPLY_EDGE, Kind.GRAD_SCATTER}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_weight_update_touches_no_matrix(name):
    *_, (kind, stage, touch) = touched(name)
    assert (kind, stage, touch) == (Kind.WEIGHT_UPDATE, None, Access())


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_whatever_is_computed_is_written_before_it_is_read(name, blocks, backward):
    written = set()
    for _, _, touch in touched(name, blocks, backward=backward):
        for read in (*touch.reads, *touch.wholes):
            if isinstance(read, Slot) and read.source == "computed":
                assert read in written
        written.update(touch.writes)
