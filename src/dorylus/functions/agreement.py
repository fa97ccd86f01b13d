"""Whether a program computes what torch does: tried on random rows of several numbers, whole and in parts.

Two ways to compute a sum differ in the last bits, and a body may magnify that: as much as its own outputs move when its
rows move by the last bit is no difference.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dorylus.functions.program import Program, Role, called
from dorylus.functions.pure import Pure
from dorylus.functions.runner import Runner
from dorylus.saga import dense
from dorylus.saga.dense import Call, Mode

_SIZES = (1, 37)
_PART_ROWS = 16
_OF_LARGEST = 1e-5
_TIMES_OWN = 16  # how far outputs may be apart, in units of what the last bits of the rows make of them
_LAST_BIT = 2.0**-23

Arrays = dict[str, NDArray[Any]]


def disagreement(pure: Pure, program: Program) -> str | None:
    """In words, how the program and torch differ; None if they do not."""
    runner = Runner()
    runner.load(program.hash, program.content)
    for seed, num_rows in enumerate(_SIZES):
        call = pure.example(num_rows, seed)
        given = dict(zip(pure.inputs, pure.arguments(call), strict=True))
        arrays = {name: given[name].numpy() for name in program.inputs}
        expected, nearby = _by_torch(pure, call), _by_torch(pure, _moved(call))
        found = runner.run(program.hash, arrays)
        if (worst := _difference(found, expected, nearby)) is not None:
            return f"its program does not do what torch does: with {num_rows} rows {worst}"
        found = runner.run_in_parts(program.hash, arrays, _PART_ROWS)
        if (worst := _difference(found, expected, nearby)) is not None:
            return f"a row's output depends on which rows come with it: with {num_rows} rows in parts {worst}"
    return None


def _moved(call: Call) -> Call:
    """The call with every entry of its rows moved by about its last bit."""
    random = torch.Generator().manual_seed(0)

    def moved(rows: Any) -> Tensor:
        up: Tensor = torch.randint(2, rows.shape, generator=random) * 2 - 1
        return rows * (1 + _LAST_BIT * up)  # type: ignore[no-any-return]

    return replace(call, inputs=tuple(map(moved, call.inputs)))


def _by_torch(pure: Pure, call: Call) -> Arrays:
    """What torch gives for a call, by name."""
    reply = dense.run(call)
    made = {} if pure.kept is None else pure.handed_over(call)
    made |= {called(Role.OUTPUT, index): output for index, output in enumerate(reply.outputs)}
    made |= {called(Role.INPUT_GRAD, index): grad for index, grad in enumerate(reply.input_grads) if grad is not None}
    made |= {called(Role.WEIGHT_GRAD, name): grad for name, grad in reply.weight_grads.items()}
    arrays = {name: tensor.numpy() for name, tensor in made.items()}
    return arrays | ({called(Role.LOSS): np.array(reply.loss, np.float32)} if call.mode is Mode.LOSS else {})


def _difference(found: Arrays, expected: Arrays, nearby: Arrays) -> str | None:
    if expected.keys() != found.keys():
        return f"it gives {sorted(found)}, where torch gives {sorted(expected)}"
    for name, want in expected.items():
        got = found[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{name} is {got.dtype}{list(got.shape)}, where torch gives {want.dtype}{list(want.shape)}"
        slack = _OF_LARGEST * max(1.0, _largest(want)) + _TIMES_OWN * _largest(want - nearby[name])
        if not np.allclose(got, want, rtol=_OF_LARGEST, atol=slack, equal_nan=True):
            return f"{name} differs from torch's by up to {_largest(got - want):.2g}"
    return None


def _largest(array: NDArray[Any]) -> float:
    """The largest entry that is finite, by size."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
