"""When a parameter server takes an update: in exact runs not before the epoch before was ended."""

import threading

import pytest

import dorylus
from dorylus.cluster.parameter_node import ParameterNode
from dorylus.wire import Frame

DEADLINE_S = 30.0


@pytest.fixture
def node(make_cluster):
    graph = dorylus.communities(num_vertices=64, num_classes=2, num_features=4, average_degree=4, seed=0)
    made = []

    def kind(job, pool):
        made.append(ParameterNode(job, 0, "127.0.0.1"))
        return made[0]

    make_cluster(graph, dorylus.gcn(), kind=kind, intervals=1, threads=1)
    return made[0]


def finish(node, epoch):
    node._answer(Frame({"what": "pull", "interval": 0, "epoch": epoch, "known": []}, {}))
    node._answer(Frame({"what": "finish", "interval": 0, "epoch": epoch, "steps": []}, {}))


def test_an_update_waits_until_the_epoch_before_was_ended(node):
    finish(node, 0)
    over = threading.Event()
    update = threading.Thread(target=lambda: (finish(node, 1), over.set()))
    update.start()
    assert not over.wait(0.2)
    node.end_epoch(1, loss=1.0, tell=False)
    assert over.wait(DEADLINE_S)
    update.join()


def test_a_state_is_told_when_an_epoch_is_ended_if_it_is_asked_for(node):
    finish(node, 0)
    assert node.end_epoch(1, loss=1.0, tell=True).weights.keys() == node.state().weights.keys()
    assert node.end_epoch(2, loss=1.0, tell=False) is None
