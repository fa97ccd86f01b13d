from types import SimpleNamespace

import numpy as np
import torch

from dorylus.runtime.server_process import targets_of
from dorylus.saga.dense import IGNORED


def test_targets_are_the_labels_of_the_given_vertices_and_ignored_where_not_trained_on():
    graph = SimpleNamespace(labels=np.array([0, 1, 2, 0, 1]), train_mask=np.array([False, True, True, False, False]))
    targets = targets_of(graph, SimpleNamespace(loss="cross_entropy", loss_total=2.0), np.array([4, 2, 1]))
    assert targets.labels.tolist() == [IGNORED, 2, 1]
    assert targets.of(slice(1, 3)).labels.dtype == torch.int64
    assert (targets.loss, targets.total) == ("cross_entropy", 2.0)
    assert graph.labels.tolist() == [0, 1, 2, 0, 1]  # the graph's own are left alone


def test_targets_of_many_labels_are_numbers():
    graph = SimpleNamespace(labels=np.eye(3, 2, dtype=np.uint8), train_mask=np.array([True, True, False]))
    targets = targets_of(graph, SimpleNamespace(loss="bce", loss_total=4.0), np.array([2, 0]))
    assert targets.labels.tolist() == [[IGNORED, IGNORED], [1.0, 0.0]]
    assert targets.labels.dtype == torch.float32
