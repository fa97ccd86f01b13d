import torch
from torch import nn

from dorylus.pipeline import Kind, Task
from dorylus.runtime.remote_weights import RemoteWeights

TASK = Task(epoch=0, phase=0, interval=0, step=0, kind=Kind.APPLY_VERTEX)


class StandInConnection:
    """A line that must not be called while the weights are locked: a waiting thread may hold the lock of the line."""

    def __init__(self, name):
        self._name, self.weights, self.pulls = name, None, 0

    def pull(self, task, read, timeout_s):
        assert not self.weights._lock.locked()
        self.pulls += 1
        return {self._name: torch.ones(2)}

    def take_fetched(self):
        assert not self.weights._lock.locked()
        return 8


def test_weights_are_pulled_from_all_servers_once_an_interval_and_no_connection_waits_for_another():
    lines = [StandInConnection("weight"), StandInConnection("bias")]
    weights = RemoteWeights(nn.Linear(2, 2), lines, 1.0)
    for line in lines:
        line.weights = weights
    assert weights.pull(TASK).keys() == {"weight", "bias"}
    assert weights.pull(TASK) is weights.pull(TASK)
    assert [line.pulls for line in lines] == [1, 1]
    assert weights.take_traffic() == {"weights": 16}
