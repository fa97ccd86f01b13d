"""Exactly the bytes that the graph and its cut require are sent: each row once to each peer that reads it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cut_runs import MODELS, Problem, cut_by_hand, make_program
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from traffic_oracle import TrafficOracle

import dorylus
from dorylus.config import RunConfig
from dorylus.runtime import EpochReport
from dorylus.training import assembly
from in_process_servers import remote_runtime

SWITCH = st.booleans()
DRAWN = (Phase.explicit, Phase.reuse, Phase.generate)  # a draw is readable as it is, and shrinking takes minutes
CUTS = st.fixed_dictionaries(
    {
        "servers": st.sampled_from([3, 2, 4, 1]),
        "intervals": st.sampled_from([4, 1]),
        "parameter_servers": st.sampled_from([1, 3]),
        "partition": st.sampled_from(["range", "hash", "metis", "stream"]),
        "ghost_precision": st.sampled_from(["float32", "bf16"]),
        "prune_rows": SWITCH,
        "mode": st.sampled_from(["pipe", "async"]),
    }
)


def oracle(graph: dorylus.Graph, program: dorylus.Program, *, first: bool = True, **settings: Any) -> TrafficOracle:
    """The oracle of a run with these settings, of its first epoch (one weight update) or of one that follows."""
    config = RunConfig.of(threads=1, **settings)
    parts = assembly.assemble(graph, program, config)
    return TrafficOracle(
        graph,
        parts.cut.parts,
        parts.cut.interval,
        parts.training,
        pruned=config.prune_rows,
        narrow=config.ghost_precision == "bf16",
        parameter_servers=config.parameter_servers,
        updates=parts.cut.num_intervals if config.weight_update == "async" and not first else 1,
    )


def without_refused(model: str, cut: dict[str, Any]) -> dict[str, Any]:
    """The cut, without what a maximum of rows, or attention with dropout, refuses."""
    exact = {
        "sage max": {"mode": "pipe", "ghost_precision": "float32"},
        "gat": {"mode": "pipe"},
        "mixed": {"mode": "pipe"},
    }
    return cut | exact.get(model, {})


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=4, phases=DRAWN, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_epoch_sends_exactly_the_bytes_that_the_graph_and_its_cut_require(
    make_cluster: Callable[..., Any], model: str, data: st.DataObject
) -> None:
    problem = Problem(
        model,
        directed=data.draw(SWITCH, label="directed"),
        few=data.draw(SWITCH, label="few"),
        dropout=data.draw(st.sampled_from([0.0, 0.4]), label="dropout"),
        num_layers=data.draw(st.sampled_from([2, 3]), label="layers"),
    )
    cut = without_refused(model, data.draw(CUTS, label="cut"))
    cluster = make_cluster(problem.graph, problem.program(), **cut)
    reports = [cluster.train_epoch() for _ in range(2)]
    cluster.close()
    expected = [oracle(problem.graph, problem.program(), first=first, **cut).epoch() for first in (True, False)]
    assert [report.traffic for report in reports] == expected
    between = expected[0].get("ghosts", 0) + expected[0].get("ghost_gradients", 0)
    assert [delivered(report) for report in reports] == [between, between]


def delivered(report: EpochReport) -> int:
    """The bytes of all messages of an epoch."""
    return sum(delivery.num_bytes for delivery in report.deliveries)


@pytest.mark.parametrize("mode", ["pipe", "async"])
def test_a_result_counts_the_bytes_of_all_its_epochs(mode: str) -> None:
    problem = Problem("gat", epochs=5)
    cut = {"servers": 4, "parameter_servers": 2, "intervals": 3, "mode": mode, "partition": "hash"}
    result = problem.train(**cut)
    first, later = (
        oracle(problem.graph, problem.program(), first=is_first, **cut).epoch() for is_first in (True, False)
    )
    assert result.traffic == {kind: first[kind] + 4 * later[kind] for kind in first}
    assert result.summary()["traffic"] == result.traffic


@pytest.mark.parametrize("model", MODELS)
def test_one_server_sends_no_ghosts(model: str) -> None:
    traffic = Problem(model, dropout=0.4, epochs=2).train(servers=1, intervals=3).traffic
    assert traffic.keys() == {"weights", "weight_gradients"}
    assert min(traffic.values()) > 0


LEAVES = 12
# The hub, vertex 0, is on server 0 with the leaves 1-4; 5-8 are on server 1 and 9-12 on server 2.
PARTS = [0, *[0] * 4, *[1] * 4, *[2] * 4]


def star(*, undirected: bool) -> dorylus.Graph:
    """Edges from a hub to its leaves, or both ways."""
    return dorylus.Graph.from_edges(
        np.zeros(LEAVES, np.int64),
        np.arange(1, LEAVES + 1),
        LEAVES + 1,
        undirected=undirected,
        features=np.ones((LEAVES + 1, 7), np.float32),
        labels=np.arange(LEAVES + 1) % 4,
        train_mask=np.ones(LEAVES + 1, np.bool_),
    )


@pytest.fixture
def sent_on_a_star(make_cluster: Callable[..., Any], tmp_path: Path) -> Callable[..., tuple[int, int]]:
    """Trains one epoch on a star over three servers; gives (bytes of rows, bytes of gradients) sent between them."""

    def sent(model: str, *, undirected: bool, **settings: Any) -> tuple[int, int]:
        # Two layers, 7 -> 6 -> 4 columns; without dropout a GCN gathers its first layer once, before training.
        graph = star(undirected=undirected)
        cut = cut_by_hand(tmp_path / f"shards{len(list(tmp_path.iterdir()))}", graph, PARTS)
        traffic = make_cluster(graph, make_program(model), **cut, **settings).train_epoch().traffic
        return traffic["ghosts"], traffic["ghost_gradients"]

    return sent


@pytest.mark.parametrize("intervals", [1, 2, 4])
def test_a_row_travels_once_to_a_peer_however_many_edges_cross(sent_on_a_star, intervals):
    # Layer 1 gathers 4 columns of 4 bytes. The hub's row goes to two peers (not over eight edges); back come the
    # cotangents of their eight leaves, one row each.
    assert sent_on_a_star("gcn", undirected=False, intervals=intervals) == (2 * 16, 8 * 16)


def test_both_ways_a_row_travels_once_to_a_peer(sent_on_a_star):
    # The hub's row to two peers and eight leaves' rows to the hub's server; of cotangents the same.
    assert sent_on_a_star("gcn", undirected=True, intervals=2) == (10 * 16, 10 * 16)


def test_rows_in_bf16_take_half(sent_on_a_star):
    assert sent_on_a_star("gcn", undirected=True, intervals=2, ghost_precision="bf16") == (10 * 8, 10 * 8)


def test_attention_sends_a_score_a_head_forward_and_three_back(sent_on_a_star):
    # Layer 0: 2 heads of 3 columns, 6 and 2 scores forward, 6 and 3 * 2 back. Layer 1: one head of 4 columns.
    rows, gradients = (6 + 2) + (4 + 1), (6 + 6) + (4 + 3)
    assert sent_on_a_star("gat", undirected=False, intervals=2) == (2 * rows * 4, 8 * gradients * 4)
    narrow, back = (6 * 2 + 2 * 4) + (4 * 2 + 1 * 4), (6 * 2 + 6 * 4) + (4 * 2 + 3 * 4)
    assert sent_on_a_star("gat", undirected=False, intervals=2, ghost_precision="bf16") == (2 * narrow, 8 * back)


@pytest.mark.parametrize("intervals", [1, 2, 4])
def test_edge_messages_send_one_partial_sum_an_interval(sent_on_a_star, intervals):
    # Forward the hub's prepared rows, 6 and 4 columns, to two peers. Back, from each interval of those two servers, one
    # sum for the hub: an int32 with its row number, and a row.
    sums = 2 * intervals * ((4 + 6 * 4) + (4 + 4 * 4))
    assert sent_on_a_star("edges sum", undirected=False, intervals=intervals) == (2 * (6 + 4) * 4, sums)


def test_a_maximum_sends_its_gradient_and_the_maximum(sent_on_a_star):
    # Layer 1 gathers 6 columns (a maximum does not commute with the weights).
    assert sent_on_a_star("sage max", undirected=False, intervals=2) == (2 * 6 * 4, 8 * 2 * 6 * 4)


def test_rows_that_reach_no_trained_vertex_do_not_travel():
    # Few trained vertices: most rows are not computed, and none of those is sent.
    problem = Problem("gcn", few=True, epochs=1)
    cut = {"servers": 4, "intervals": 3, "partition": "hash"}
    pruned, whole = (problem.train(**cut, prune_rows=prune).traffic["ghosts"] for prune in (True, False))
    assert pruned < whole / 3


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_sockets_carry_the_bytes_that_the_graph_and_its_cut_require(
    make_cluster: Callable[..., Any], model: str
) -> None:
    graph = dorylus.communities(num_vertices=3000, num_classes=5, num_features=8, average_degree=10, seed=0)
    recipe = dorylus.gcn(hidden=128) if model == "gcn" else dorylus.gat(hidden=16, heads=8)
    program = recipe.build(graph.num_features, graph.num_classes, seed=0)
    cut = {"servers": 3, "intervals": 3, "partition": "stream"}
    cluster = make_cluster(graph, program, kind=remote_runtime, **cut)
    reports = [cluster.train_epoch() for _ in range(6)]
    expected = oracle(graph, program, **cut).epoch()
    between = expected["ghosts"] + expected["ghost_gradients"]
    sent = [sum(each.sent_bytes for each in report.servers) for report in reports[1:]]
    # Frames and reports are on top; what is still on its way when an epoch ends counts for the next, or after the last
    # epoch for none: so no mean.
    assert between <= np.median(sent) * 1.01
    assert np.median(sent) <= between * 1.05
