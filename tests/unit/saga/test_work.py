import pytest

import dorylus
from dorylus.saga import Savings, lower
from dorylus.saga.lower import Work, measure

EDGES = 100
INTO = {0: 100, 1: 80, 2: 30}  # edges that end in a row needed at a level
NOTHING_SAVED = Savings(cache_first_gather=False, narrow_gather=False, prune_rows=False)


def work_of(recipe, savings=None, into=INTO, widths=(10, 6)):
    plan = lower(recipe.build(*widths), sparse_features=False, training=True, savings=savings or Savings())
    return measure(plan, lambda layer, level: into[level], lambda layer: EDGES)


def test_all_savings_are_counted_and_reported():
    work = work_of(dorylus.gcn(hidden=4, dropout=0))
    # Layer 0 is gathered once; layer 1 gathers its 4 inputs (not 6 outputs) over 30 edges, forward and backward.
    assert work.done == 30 * 4 * 2
    assert work.naive == 100 * 4 * 2 + 100 * 6 * 2
    assert [text[:7] for text in work.saved] == ["layer 0", "layer 1", "layer 1"]
    assert "once for all epochs" in work.saved[0]
    assert "4 columns instead of 6" in work.saved[1]
    assert "30 % of edges" in work.saved[2]
    assert str(work).startswith("12 % of naive edge-work (layer 0 ")


def test_nothing_saved_is_the_naive_work():
    work = work_of(dorylus.gcn(hidden=4, dropout=0), NOTHING_SAVED, into=dict.fromkeys(range(3), EDGES))
    assert (work.done, work.naive, work.share, work.saved) == (2000, 2000, 1.0, ())
    assert str(work) == "100 % of naive edge-work"


def test_dropout_on_the_features_forbids_gathering_them_once():
    work = work_of(dorylus.gcn(hidden=4, dropout=0.5))
    assert work.done == 80 * 4 * 2 + 30 * 4 * 2  # 2 x 4 < 10: transform first
    assert work.naive == 2000


def test_gathering_features_themselves_needs_no_gradient():
    work = work_of(dorylus.gcn(hidden=8, dropout=0.5))
    assert work.done == 80 * 10 * 1 + 30 * 6 * 2
    assert work.naive == 100 * 8 * 2 + 100 * 6 * 2


def test_a_layer_that_usually_gathers_first_is_measured_against_that():
    work = work_of(dorylus.sage(hidden=8, dropout=0.5), NOTHING_SAVED, into=dict.fromkeys(range(3), EDGES))
    assert work.done == work.naive == 100 * 10 * 1 + 100 * 8 * 2


def test_all_heads_of_attention_count():
    work = work_of(dorylus.gat(hidden=2, heads=3, output_heads=4, dropout=0.5), into=dict.fromkeys(range(3), EDGES))
    assert work.done == work.naive == 100 * 6 * 2 + 100 * 24 * 2


def test_no_edges_are_no_work():
    assert Work(0, 0, ()).share == 0.0
    assert str(Work(0, 0, ())) == "0 % of naive edge-work"


@pytest.mark.parametrize("share", [0.22, 0.5])
def test_the_share_is_reported_in_percent(share):
    assert f"{round(100 * share)} % of naive" in str(Work(round(1000 * share), 1000, ()))
