import os

import numpy as np
import pytest
import torch

import dorylus
from dorylus.errors import ConfigError
from dorylus.saga.dense import IGNORED
from dorylus.training.assembly import assemble, bind, threads_of
from dorylus.training.config import RunConfig


def path_graph(**more):
    """0 -> 1 -> 2 -> 3 -> 4, five features, three classes; only vertex 2 is trained on."""
    fields = {
        "features": np.ones((5, 5), np.float32),
        "labels": np.array([0, 1, 2, 0, 1]),
        "train_mask": np.arange(5) == 2,
        "num_classes": 3,
    }
    return dorylus.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 4], 5, undirected=False, **(fields | more))


def assembled(graph, model, **settings):
    return assemble(graph, bind(model, graph, 0), RunConfig.of(threads=1, **settings))


def test_edge_work_is_counted_as_by_hand():
    parts = assembled(path_graph(), dorylus.gcn(hidden=2, dropout=0.0))
    # With self loops there are 4 + 5 edges. Layer 0 is gathered once. Layer 1 gathers 2 columns (not 3) over the two
    # edges into vertex 2, forward and backward; naive gathers 2 and 3 columns over all nine, forward and backward.
    assert parts.work.done == 2 * 2 * 2
    assert parts.work.naive == 9 * 2 * 2 + 9 * 3 * 2


def test_without_pruning_every_edge_counts():
    parts = assembled(path_graph(), dorylus.gcn(hidden=2, dropout=0.0), prune_rows=False)
    assert parts.work.done == 9 * 2 * 2


def test_rows_are_needed_as_far_as_they_reach_the_trained_vertex():
    layout = assembled(path_graph(), dorylus.gcn(dropout=0.5), intervals=1).shard.layout
    needed = [sorted(layout.order[slice(*layout.rows(level, 0))].tolist()) for level in range(3)]
    assert needed == [[0, 1, 2], [1, 2], [2]]


def test_targets_are_the_trained_labels_in_the_shards_order():
    parts = assembled(path_graph(), dorylus.gcn())
    expected = np.where(parts.shard.ids == 2, 2, IGNORED)
    assert parts.targets.labels.tolist() == expected.tolist()
    assert (parts.targets.loss, parts.targets.total) == ("cross_entropy", 1.0)


def test_targets_of_many_labels_count_every_class():
    labels = np.eye(5, 3, dtype=np.uint8)
    parts = assembled(path_graph(labels=labels, train_mask=np.arange(5) < 2), dorylus.gcn())
    assert (parts.targets.loss, parts.targets.total) == ("bce", 6.0)
    assert parts.targets.labels.dtype == torch.float32
    assert labels.max() == 1  # the graph's own are left alone


@pytest.mark.parametrize(("loss", "many"), [("bce", False), ("cross_entropy", True)])
def test_a_loss_that_does_not_fit_the_labels_is_refused(loss, many):
    graph = path_graph(labels=np.eye(5, 3, dtype=np.uint8)) if many else path_graph()
    with pytest.raises(ConfigError, match="use loss='auto'"):
        assembled(graph, dorylus.gcn(), loss=loss)


def test_intervals_are_those_asked_for():
    assert assembled(path_graph(), dorylus.gcn(), intervals=4).shard.layout.num_intervals == 4
    assert assembled(path_graph(), dorylus.gcn()).shard.layout.num_intervals == 1


def test_threads_are_the_cores_of_the_process_unless_told():
    assert threads_of(RunConfig(threads=3)) == 3
    assert threads_of(RunConfig()) == len(os.sched_getaffinity(0))


def test_a_recipe_is_built_for_the_graph_from_the_seed():
    graph = path_graph()
    first, again, other = (bind(dorylus.gcn(), graph, seed) for seed in (0, 0, 1))
    assert (first.in_columns, first.out_columns) == (5, 3)
    assert torch.equal(first.layer(0).lin.weight, again.layer(0).lin.weight)
    assert not torch.equal(first.layer(0).lin.weight, other.layer(0).lin.weight)


def test_a_program_is_trained_as_a_copy_with_the_same_weights():
    program = dorylus.gcn().build(5, 3)
    bound = bind(program, path_graph(), 7)
    assert bound is not program
    assert all(torch.equal(a, b) for a, b in zip(bound.parameters(), program.parameters(), strict=True))
    assert not any(a is b for a, b in zip(bound.parameters(), program.parameters(), strict=True))
