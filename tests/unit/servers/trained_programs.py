"""A small program with every kind of parameter, gradients for it, and parameter servers that train it."""

import random

import torch
from torch import nn

from dorylus.servers.parameter.parameter_servers import ParameterServers

STEPS = (3, 5)


class Odd(nn.Module):
    """Parameters of very different sizes: one shared by two layers, one frozen, one without a gradient."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(30, 4)
        self.second = nn.Linear(4, 4)
        self.third = nn.Linear(4, 4)
        self.third.weight = self.second.weight
        self.second.bias.requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor(2.0))


def optimizer_maker(cls=torch.optim.SGD, *, decay=(0.5, 0.0), **options):
    """An optimiser of a slice; biases have a weight decay of their own, and every slice has both groups."""

    def make(named):
        groups = [
            {"params": [p for name, p in named if name.endswith("bias") is is_bias], "weight_decay": each}
            for is_bias, each in zip((False, True), decay, strict=True)
        ]
        return cls(groups, **({"lr": 0.1} | options))

    return make


def servers(num_servers=1, make_optimizer=None, program=None, **others):
    """Parameter servers of a new program, with the same values every time."""
    make_optimizer = make_optimizer or optimizer_maker(decay=(0.0, 0.0), lr=1.0)
    return ParameterServers(program or Odd(), num_servers, make_optimizer=make_optimizer, **others)


def gradients(epoch, step, interval):
    """Gradients of a task: the later step's of all names, the other's of some, of very different sizes."""
    generator = torch.Generator().manual_seed(1000 * epoch + 10 * step + interval)
    size = 10 ** random.Random(f"{epoch} {step} {interval}").uniform(-3, 3)
    shapes = {"third.weight": (4, 4), "third.bias": (4,)}
    if step == STEPS[-1]:
        shapes |= {"first.weight": (4, 30), "first.bias": (4,), "second.weight": (4, 4)}
    return {name: torch.randn(shape, generator=generator) * size for name, shape in shapes.items()}


def train(group, epochs, num_intervals=2):
    """Train for some epochs, one interval after the other, the loss going up and down."""
    for epoch in epochs:
        for interval in range(num_intervals):
            group.pull(interval, epoch)
            for step in STEPS:
                group.push(interval, epoch, step, gradients(epoch, step, interval))
            group.finish(interval, epoch)
        group.end_epoch(float(epoch % 3))


def bits(weights):
    """The weights, comparable bit by bit."""
    return {name: weight.detach().numpy().tobytes() for name, weight in weights.items()}
