import os

import numpy as np
import pytest
import torch

import dorylus
from dorylus.config import RunConfig
from dorylus.errors import ConfigError, GraphError
from dorylus.partition import make_partitioning, save_shards
from dorylus.training.assembly import assemble, bind, check_trainable, threads_of


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
    layout = assembled(path_graph(), dorylus.gcn(dropout=0.5), intervals=1).cut.layouts[0]
    needed = [sorted(layout.order[slice(*layout.rows(level, 0))].tolist()) for level in range(3)]
    assert needed == [[0, 1, 2], [1, 2], [2]]


def test_the_loss_is_a_mean_over_the_trained_vertices():
    parts = assembled(path_graph(), dorylus.gcn())
    assert (parts.loss, parts.loss_total) == ("cross_entropy", 1.0)


def test_the_loss_of_many_labels_counts_every_class():
    labels = np.eye(5, 3, dtype=np.uint8)
    parts = assembled(path_graph(labels=labels, train_mask=np.arange(5) < 2), dorylus.gcn())
    assert (parts.loss, parts.loss_total) == ("bce", 6.0)


@pytest.mark.parametrize(("loss", "many"), [("bce", False), ("cross_entropy", True)])
def test_a_loss_that_does_not_fit_the_labels_is_refused(loss, many):
    graph = path_graph(labels=np.eye(5, 3, dtype=np.uint8)) if many else path_graph()
    with pytest.raises(ConfigError, match="use loss='auto'"):
        assembled(graph, dorylus.gcn(), loss=loss)


def test_intervals_are_those_requested():
    assert assembled(path_graph(), dorylus.gcn(), intervals=4).cut.num_intervals == 4
    assert assembled(path_graph(), dorylus.gcn()).cut.num_intervals == 1


def test_the_requested_intervals_hold_on_every_server():
    cut = assembled(path_graph(), dorylus.gcn(), intervals=2, servers=2).cut
    assert (cut.num_servers, cut.num_intervals, cut.bounds) == (2, 4, (0, 2, 4))


def test_intervals_that_are_chosen_are_chosen_for_all_servers_together(monkeypatch):
    monkeypatch.setattr("dorylus.training.assembly.choose_intervals", lambda rows, edges, threads: 8)
    graph = dorylus.ring(num_vertices=60)
    for servers, each in ((1, 8), (2, 4), (3, 3), (20, 1)):
        assert assembled(graph, dorylus.gcn(), servers=servers).cut.num_intervals == servers * each


def test_intervals_that_are_chosen_fit_the_smallest_server(monkeypatch):
    monkeypatch.setattr("dorylus.training.assembly.choose_intervals", lambda rows, edges, threads: 100)
    cut = assembled(path_graph(), dorylus.gcn(), servers=2, partition="range").cut
    smallest = np.bincount(cut.parts).min()
    assert [layout.num_intervals for layout in cut.layouts] == [smallest, smallest]


def test_more_intervals_than_a_server_has_vertices_are_refused_by_its_number():
    message = r"intervals=4, but shard 0 has (\d) vertices.*use at most \1, or fewer servers"
    with pytest.raises(ConfigError, match=message):
        assembled(path_graph(), dorylus.gcn(), servers=2, intervals=4)


def test_every_vertex_has_one_server_and_the_work_stays_the_same():
    one, two = (assembled(path_graph(), dorylus.gcn(hidden=2), servers=servers) for servers in (1, 2))
    assert sorted(np.concatenate([layout.order for layout in two.cut.layouts]).tolist()) == [0, 1, 2, 3, 4]
    assert (one.work.done, one.work.naive) == (two.work.done, two.work.naive)


def test_an_unknown_partitioner_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'range'"):
        assembled(path_graph(), dorylus.gcn(), servers=2, partition="rangee")


def test_one_server_needs_no_partitioning(monkeypatch):
    monkeypatch.setattr("dorylus.training.assembly.make_partitioning", None)
    assert assembled(path_graph(), dorylus.gcn()).cut.parts.tolist() == [0] * 5


@pytest.fixture
def saved(tmp_path):
    """A folder of shards for two servers, and the graph they are of."""
    graph = path_graph()
    save_shards(tmp_path / "shards", graph, make_partitioning(graph, 2, "range"))
    return tmp_path / "shards", graph


def test_saved_shards_determine_the_owner_of_every_vertex(saved):
    folder, graph = saved
    expected = make_partitioning(graph, 2, "range").parts
    found = assembled(graph, dorylus.gcn(), servers=2, partition=str(folder)).cut.parts
    np.testing.assert_array_equal(found, expected)


def test_saved_shards_for_another_number_of_servers_are_refused_with_both_cures(saved):
    folder, graph = saved
    message = (
        r"servers=3, but .* holds shards for 2: use that many, or cut them again by `dorylus partition .* --servers 3"
    )
    with pytest.raises(ConfigError, match=message):
        assembled(graph, dorylus.gcn(), servers=3, partition=str(folder))


INEXACT = [{"mode": "async"}, {"ghost_precision": "bf16"}]


@pytest.mark.parametrize("settings", INEXACT, ids=str)
def test_a_maximum_is_refused_where_the_row_that_won_may_have_changed(settings):
    ((name, value),) = settings.items()
    message = f"layer 1 gathers a maximum.*with {name}='{value}' that row may have changed: use mode='pipe' and float32"
    with pytest.raises(ConfigError, match=message):
        assembled(path_graph(), dorylus.sage(aggregator="max"), servers=2, **settings)


@pytest.mark.parametrize("settings", INEXACT, ids=str)
def test_a_maximum_without_a_gradient_of_its_own_is_not_refused(settings):
    recipe = dorylus.sage(aggregator="max", num_layers=1, dropout=0.0)
    assert assembled(path_graph(), recipe, servers=2, **settings).training.stages


def test_a_maximum_is_not_refused_where_no_row_travels():
    assert assembled(path_graph(), dorylus.sage(aggregator="max"), ghost_precision="bf16").training.stages
    with pytest.raises(ConfigError, match="layer 1 gathers a maximum"):  # one server, but of many epochs
        assembled(path_graph(), dorylus.sage(aggregator="max"), mode="async")


def attention(dropout=0.0, attention_dropout=0.0):
    """Two layers of attention, whose inputs or attention drop in the second only."""
    return dorylus.Program([dorylus.GAT(5, 4), dorylus.GAT(4, 3, dropout=dropout, attention_dropout=attention_dropout)])


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("drops", [{"dropout": 0.5}, {"attention_dropout": 0.5}], ids=str)
def test_attention_under_dropout_is_refused_where_its_gradient_may_meet_rows_of_another_epoch(drops, servers):
    message = "layer 1 weighs its neighbours by attention, and the model has dropout.*Use mode='pipe', or .*dropout=0"
    with pytest.raises(ConfigError, match=message):
        assembled(path_graph(), attention(**drops), mode="async", servers=servers)
    for mode in ("pipe", "no_pipe"):
        assert assembled(path_graph(), attention(**drops), mode=mode, servers=servers).training.stages


def test_dropout_before_attention_is_refused_too():
    program = dorylus.Program([dorylus.GCN(5, 4, dropout=0.5), dorylus.GAT(4, 3)])
    with pytest.raises(ConfigError, match="layer 1 weighs its neighbours by attention"):
        assembled(path_graph(), program, mode="async")


@pytest.mark.parametrize(
    "program",
    [
        attention(),
        dorylus.Program([dorylus.GAT(5, 4), dorylus.GCN(4, 3, dropout=0.5)]),  # what comes after attention may drop
        dorylus.Program([dorylus.GCN(5, 4, dropout=0.5), dorylus.GCN(4, 3, dropout=0.5)]),
    ],
    ids=["no dropout", "dropout after attention", "no attention"],
)
def test_models_whose_gradients_stay_near_are_not_refused(program):
    assert assembled(path_graph(), program, mode="async", servers=2).training.stages


class Largest(dorylus.Layer):
    """The largest message: the gradient goes to the edge that won, which the interval keeps itself."""

    reduce = "max"

    def __init__(self, in_columns, out_columns):
        super().__init__(in_columns, out_columns)
        self.lin = torch.nn.Linear(in_columns, out_columns)

    def apply_edge(self, source, destination, weight):
        return self.lin(source - destination)


@pytest.mark.parametrize("settings", INEXACT, ids=str)
def test_a_maximum_of_messages_is_not_refused(settings):
    program = dorylus.Program([Largest(5, 4), Largest(4, 3)])
    assert assembled(path_graph(), program, **settings).training.stages


def test_threads_are_the_cores_of_the_process_by_default():
    assert threads_of(RunConfig(threads=3)) == 3
    assert threads_of(RunConfig()) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, True),
        ({"rematerialize": True}, False),
        ({"pool": "processes"}, False),
        ({"pool": "processes", "rematerialize": False}, True),
        ({"pool": "ray"}, False),
        ({"memory": "8GiB"}, True),  # all fits into memory
        ({"memory": "8GiB", "rematerialize": True}, False),
    ],
    ids=str,
)
def test_autograd_graphs_are_kept_as_the_pool_does_unless_the_settings_say_otherwise(settings, kept):
    assert assembled(path_graph(), dorylus.gcn(hidden=2), **settings).keeps_graphs is kept


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


def test_classes_numbered_with_gaps_are_refused_before_a_model_is_built():
    graph = path_graph(labels=np.array([0, 1, 2**20, 0, 1]), num_classes=2**20 + 1)
    with pytest.raises(GraphError, match=r"1,048,577 classes, but 5 vertices: .* Number the classes from 0 without"):
        check_trainable(graph, RunConfig.of())
    check_trainable(path_graph(num_classes=2**20), RunConfig.of())
