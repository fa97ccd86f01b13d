"""Calls and replies in the form in which they travel between processes, and the function that runs a call there.

Plain arrays travel in place of tensors: pickle moves the memory of arrays without copying it. A body and a version of
the weights belong to many calls, so each is stored once where all processes can fetch it. Inputs are copied once on
arrival: they may lie in memory that other processes read, and a user's body may write to them.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dorylus.pipeline import Task
from dorylus.saga import Body, Call, Mode, Reply, Rows, SparseRows, Targets, dense

Array = NDArray[Any]
PackedRows = Array | SparseRows
PackedWeights = dict[str, tuple[Array, bool]]  # and whether they need a gradient
_calls_here = count()


@dataclass(frozen=True)
class PackedCall:
    """A call without its body, its weights and the autograd graph kept by the sender."""

    task: Task
    mode: Mode
    inputs: tuple[PackedRows, ...]
    needs_grad: tuple[bool, ...]
    cotangents: tuple[Array | None, ...]
    targets: tuple[str, Array, float] | None
    columns: tuple[int, ...]

    @staticmethod
    def of(call: Call) -> "PackedCall":
        """A call, packed. Shares the call's memory, except for sparse rows, which are copied out of their matrix."""
        targets = call.targets
        return PackedCall(
            call.task,
            call.mode,
            tuple(_array(rows) if isinstance(rows, Tensor) else _cut(rows) for rows in call.inputs),
            call.needs_grad,
            tuple(None if each is None else _array(each) for each in call.cotangents),
            None if targets is None else (targets.loss, _array(targets.labels), targets.total),
            call.columns,
        )

    def call(self, body: Body, weights: Mapping[str, Tensor]) -> Call:
        """The call, for the process that runs it."""
        targets = None
        if self.targets is not None:
            loss, labels, total = self.targets
            targets = Targets(loss, _tensor(labels), total)
        inputs = tuple(_arrived(rows) for rows in self.inputs)
        cotangents = tuple(None if each is None else _tensor(each) for each in self.cotangents)
        return Call(self.task, self.mode, body, weights, inputs, self.needs_grad, cotangents, targets, self.columns)

    @property
    def nbytes(self) -> int:
        """The size of its arrays."""
        labels = [] if self.targets is None else [self.targets[1]]
        dense = [rows for rows in self.inputs if not isinstance(rows, SparseRows)]
        sparse = [
            part
            for rows in self.inputs
            if isinstance(rows, SparseRows)
            for part in (rows.indptr, rows.indices, rows.values)
        ]
        return _size([*dense, *sparse, *self.cotangents, *labels])


@dataclass(frozen=True)
class PackedReply:
    """A reply without its autograd graph."""

    outputs: tuple[Array, ...]
    input_grads: tuple[Array | None, ...]
    weight_grads: dict[str, Array]
    loss: float

    @staticmethod
    def of(reply: Reply) -> "PackedReply":
        """A reply, packed."""
        return PackedReply(
            tuple(_array(each) for each in reply.outputs),
            tuple(None if each is None else _array(each) for each in reply.input_grads),
            {name: _array(grad) for name, grad in reply.weight_grads.items()},
            reply.loss,
        )

    def reply(self) -> Reply:
        """The reply, in memory of its own."""
        return Reply(
            tuple(_tensor(each) for each in self.outputs),
            tuple(None if each is None else _tensor(each) for each in self.input_grads),
            {name: _tensor(grad) for name, grad in self.weight_grads.items()},
            self.loss,
        )

    @property
    def nbytes(self) -> int:
        """The size of its arrays."""
        return _size([*self.outputs, *self.input_grads, *self.weight_grads.values()])


def packed_weights(weights: Mapping[str, Tensor]) -> PackedWeights:
    """One version of the weights, packed."""
    return {name: (_array(weight), weight.requires_grad) for name, weight in weights.items()}


def unpacked_weights(packed: PackedWeights) -> dict[str, Tensor]:
    """One version of the weights, as bodies take it."""
    return {name: _tensor(array).requires_grad_(trained) for name, (array, trained) in packed.items()}


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().contiguous().numpy()
    return array


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array))


def _cut(rows: SparseRows) -> SparseRows:
    """The same rows without the rest of the matrix, which their entries lie in."""
    first, last = int(rows.indptr[0]), int(rows.indptr[-1])
    return SparseRows(rows.indptr - first, rows.indices[first:last], rows.values[first:last], rows.num_columns)


def _arrived(rows: PackedRows) -> Rows:
    if not isinstance(rows, SparseRows):
        return _tensor(rows)
    return replace(rows, indptr=np.array(rows.indptr), indices=np.array(rows.indices), values=np.array(rows.values))


def _size(arrays: Iterable[Array | None]) -> int:
    return sum(each.nbytes for each in arrays if each is not None)


@dataclass(frozen=True)
class WorkerReply:
    """A reply or the body's error; how often the call had been started before, and whether its process was new."""

    reply: PackedReply | None
    error: Exception | None
    attempt: int
    cold: bool
    compute_s: float


def carry_out(call: Call, attempt: int, portable: Callable[[Exception], Exception]) -> WorkerReply:
    """Run a call in this process. ``portable`` converts an error into one that can be pickled."""
    torch.set_num_threads(1)  # more threads would add in another order
    cold, begun = next(_calls_here) == 0, time.perf_counter()
    reply = error = None
    try:
        reply = PackedReply.of(dense.run(call))
    except Exception as why:  # an error of the body ends the run and is not retried
        error = portable(why)
    return WorkerReply(reply, error, attempt, cold, time.perf_counter() - begun)


class WorkerTally:
    """Counts of what was sent and answered; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = self._again = self._cold_starts = self._bytes_in = self._bytes_out = 0
        self._compute_s = 0.0

    def sent(self, nbytes: int) -> None:
        """Count a call that was sent, and its bytes."""
        with self._lock:
            self._calls += 1
            self._bytes_in += nbytes

    def answered(self, answer: WorkerReply) -> None:
        """Count an answer."""
        with self._lock:
            self._again += answer.attempt
            self._cold_starts += answer.cold
            self._bytes_out += 0 if answer.reply is None else answer.reply.nbytes
            self._compute_s += answer.compute_s

    def figures(self) -> Mapping[str, Any]:
        """The counts, under the names that pools of functions use.

        Bytes are counted as the worker receives and sends them. Nothing is billed: machines cost, calls do not.
        """
        with self._lock:
            launches = self._calls + self._again
            return {
                "calls": self._calls,
                "launches": launches,
                "invocations": launches,
                "relaunches": self._again,
                "losses": self._again,
                "cold_starts": self._cold_starts,
                "bytes_in": self._bytes_in,
                "bytes_out": self._bytes_out,
                "compute_ms": 1000 * self._compute_s,
                "billed_ms": 0.0,
                **dict.fromkeys(("timeouts", "throttled", "refused", "duplicates", "duplicate_parts"), 0),
            }


class ReferenceCache:
    """The sender's cache: maps an object, by its identity, to its stored reference; keeps the few used last."""

    def __init__(self, put: Callable[[Any], Any], at_most: int, pack: Callable[[Any], Any] | None = None) -> None:
        self._put, self._at_most, self._pack = put, at_most, pack
        self._lock = threading.Lock()
        self._held: OrderedDict[int, tuple[object, Any]] = OrderedDict()

    def ref(self, item: Any) -> tuple[Any, bool]:
        """The reference of an object, and whether it was stored by this call."""
        with self._lock:
            fresh = id(item) not in self._held
            if fresh:
                packed = item if self._pack is None else self._pack(item)
                # Holds the object too, or else another one could have its id.
                self._held[id(item)] = item, self._put(packed)
            self._held.move_to_end(id(item))
            if len(self._held) > self._at_most:
                self._held.popitem(last=False)
            return self._held[id(item)][1], fresh


class ObjectCache:
    """The worker's cache, in a process that runs one call at a time: keeps the few objects used last."""

    def __init__(self, at_most: int, unpack: Callable[[Any], Any] | None = None) -> None:
        self._at_most, self._unpack = at_most, unpack
        self._held: OrderedDict[str, Any] = OrderedDict()

    def get(self, key: str, fetch: Callable[[], Any]) -> Any:
        """The object of a key; ``fetch`` gets it where it is not in the cache."""
        if key not in self._held:
            packed = fetch()
            self._held[key] = packed if self._unpack is None else self._unpack(packed)
        self._held.move_to_end(key)
        if len(self._held) > self._at_most:
            self._held.popitem(last=False)
        return self._held[key]
