"""The parameter server: holds the weights, numbers their versions, applies optimiser steps."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass
class _Ordered:
    """A sum over intervals that comes out the same to the last bit whatever order they arrive in."""

    total: dict[str, Tensor] = field(default_factory=dict)
    waiting: dict[int, Mapping[str, Tensor]] = field(default_factory=dict)
    following: int = 0

    def add(self, interval: int, grads: Mapping[str, Tensor]) -> None:
        self.waiting[interval] = grads
        while self.following in self.waiting:
            for name, grad in self.waiting.pop(self.following).items():
                if name in self.total:
                    self.total[name] += grad
                else:
                    self.total[name] = grad.clone()
            self.following += 1


class ParameterServer:
    """Weights of one program, stepped once an epoch from the sum of all intervals' gradients.

    Without an optimiser the weights only serve: evaluation and prediction.
    """

    def __init__(self, program: nn.Module, optimizer: Optimizer | None = None) -> None:
        self.optimizer = optimizer
        self.version = 0
        self._parameters = dict(program.named_parameters(remove_duplicate=False))  # layers may share weights
        self._lock = threading.Lock()
        self._sums: dict[int, _Ordered] = {}
        self._pulled: Mapping[str, Tensor] | None = None
        self._pulled_lock = threading.Lock()

    def pull(self) -> Mapping[str, Tensor]:
        """The weights of the current version, as leaves of an autograd graph of their own."""
        with self._pulled_lock:
            if self._pulled is None:
                self._pulled = {
                    name: weight.detach().requires_grad_(weight.requires_grad)
                    for name, weight in self._parameters.items()
                }
            return self._pulled

    def push(self, step: int, interval: int, grads: Mapping[str, Tensor]) -> None:
        """Take one task's weight gradients; each task of a step pushes exactly once an epoch."""
        with self._lock:
            self._sums.setdefault(step, _Ordered()).add(interval, grads)

    def update(self) -> None:
        """WU: one optimiser step from everything pushed since the last."""
        for parameter in self._parameters.values():
            parameter.grad = None
        for step in sorted(self._sums):
            for name, grad in self._sums[step].total.items():
                parameter = self._parameters[name]
                parameter.grad = grad if parameter.grad is None else parameter.grad + grad
        self._sums.clear()
        assert self.optimizer is not None
        self.optimizer.step()
        self.version += 1
        self._pulled = None

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights of the current version."""
        return {name: weight.detach().clone() for name, weight in self._parameters.items()}

    def load(self, weights: Mapping[str, Tensor], version: int | None = None) -> None:
        """Hold these weights, under the number of their version where it is another."""
        with torch.no_grad():
            for name, weight in weights.items():
                self._parameters[name].copy_(weight)
        self.version = self.version if version is None else version
        self._pulled = None
