"""Helpers for tests of the trainer: scores and Ctrl-C at given epochs, and comparison of weights."""

import torch

from dorylus.runtime import LocalRuntime
from dorylus.training.interrupt import Interrupt


def state(result):
    """A copy of the weights of a result's model."""
    return {name: value.clone() for name, value in result.model.state_dict().items()}


def same(first, second):
    """Whether two sets of weights are the same to the last bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def scores(monkeypatch, values):
    """Lets evaluations give these validation accuracies, the last one for ever."""
    given = iter(values)
    last = {}

    def evaluate(graph, logits):
        last["val_accuracy"] = next(given, last.get("val_accuracy"))
        return dict(last)

    monkeypatch.setattr("dorylus.training.trainer.evaluate", evaluate)


def ctrl_c(monkeypatch, at):
    """Presses Ctrl-C after a number of epochs."""
    epochs = []

    class Pressed(Interrupt):
        @property
        def requested(self):
            epochs.append(1)
            return len(epochs) >= at

        @requested.setter
        def requested(self, value):
            pass

    monkeypatch.setattr("dorylus.training.trainer.Interrupt", Pressed)


def noted_epochs(monkeypatch):
    """The permit of every epoch that trainers train from now on, and whether the run was synchronous by then."""
    permits = []

    class Noted(LocalRuntime):
        def train_epoch(self, permit=None, exact_from=None):
            permits.append((permit, exact_from is not None))
            return super().train_epoch(permit, exact_from)

    monkeypatch.setattr("dorylus.training.placement.LocalRuntime", Noted)
    return permits
