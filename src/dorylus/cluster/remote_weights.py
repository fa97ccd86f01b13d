"""The weights as a graph server in another process than the parameter servers' has them."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dorylus.cluster.crew import BACKWARD
from dorylus.cluster.parameter_line import ParameterLine
from dorylus.cluster.parameter_node import slices_of
from dorylus.pipeline import Kind, Task
from dorylus.saga.dense import Call, Reply
from dorylus.wire import Frame, WireError


class RemoteWeights:
    """Pulls, pushes and finishes at all parameter servers, each of which holds its own parameters.

    A version is fetched once, however many intervals use it. An interval's gradients travel together when it finishes,
    which nobody waits for: who finishes is told when they were taken. Losses are kept for whoever reports the epoch.
    """

    def __init__(self, program: nn.Module, servers: Sequence[ParameterLine], timeout_s: float) -> None:
        self._servers, self._timeout_s = servers, timeout_s
        owners = {name: server for server, its in enumerate(slices_of(program, len(servers))) for name in its}
        first = {parameter: name for name, parameter in program.named_parameters()}
        every = dict(program.named_parameters(remove_duplicate=False))
        self._owner = {alias: owners[first[parameter]] for alias, parameter in every.items()}
        self._trained = {alias: parameter.requires_grad for alias, parameter in every.items()}
        self._lock = threading.Lock()
        self._pinned: dict[tuple[int, int], Mapping[str, Tensor]] = {}
        self._losses: dict[int, dict[int, float]] = defaultdict(dict)
        self._traffic: Counter[str] = Counter()
        self._pushed: dict[tuple[int, int], dict[int, Mapping[str, Tensor]]] = defaultdict(dict)  # by step

    def pull(self, task: Task) -> Mapping[str, Tensor]:
        """The version that the task's interval has pinned for this epoch."""
        at = task.interval, task.epoch
        with self._lock:
            if at in self._pinned:
                return self._pinned[at]
        weights: dict[str, Tensor] = {}
        for server in self._servers:
            weights |= server.pull(task, self._as_weights, self._timeout_s)
        fetched = sum(server.take_fetched() for server in self._servers)  # not under our lock: a line has its own
        with self._lock:
            self._traffic["weights"] += fetched
            return self._pinned.setdefault(at, weights)

    def latest(self) -> dict[str, Tensor]:
        """The latest version."""
        weights: dict[str, Tensor] = {}
        for server in self._servers:
            weights |= self._as_weights(server.ask({"what": "latest"}, {}, self._timeout_s))
        return weights

    def replied(self, task: Task, call: Call, reply: Reply) -> None:
        """Keep the weight gradients for when the interval finishes, note the loss."""
        with self._lock:
            if task.kind in BACKWARD:
                self._pushed[task.interval, task.epoch][task.step] = reply.weight_grads
            self._traffic["weight_gradients"] += sum(grad.nbytes for grad in reply.weight_grads.values())
            if task.kind is Kind.LOSS:
                self._losses[task.epoch][task.interval] = reply.loss

    def finish(self, task: Task, done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        """Push all gradients of the interval in this epoch: they are complete."""
        at, answers = (task.interval, task.epoch), list[Frame | WireError]()

        def answered(answer: Frame | WireError) -> None:
            with self._lock:
                answers.append(answer)
                if len(answers) < len(self._servers):
                    return
                self._pinned.pop(at, None)
            try:
                for each in answers:
                    if isinstance(each, WireError):
                        raise each
                done()
            except Exception as error:  # the line's thread has nobody to tell
                failed(error)

        with self._lock:
            steps = self._pushed.pop(at, {})
        header = {"what": "finish", "interval": task.interval, "epoch": task.epoch, "steps": list(steps)}
        for number, server in enumerate(self._servers):
            server.submit(header, self._arrays(steps, number), answered)

    def take_losses(self, epoch: int) -> dict[int, float]:
        """Each interval's part of a finished epoch's loss."""
        with self._lock:
            return self._losses.pop(epoch, {})

    def take_traffic(self) -> dict[str, int]:
        """Bytes of weights and gradients since this was last asked."""
        with self._lock:
            taken, self._traffic = dict(self._traffic), Counter()
            return taken

    def close(self) -> None:
        """Hang up."""
        for server in self._servers:
            server.close()

    def _arrays(self, steps: Mapping[int, Mapping[str, Tensor]], server: int) -> dict[str, NDArray[Any]]:
        """The gradients that a parameter server is to have, named by step and parameter."""
        return {
            f"{step}:{name}": grad.contiguous().numpy()
            for step, grads in steps.items()
            for name, grad in grads.items()
            if self._owner[name] == server
        }

    def _as_weights(self, frame: Frame) -> dict[str, Tensor]:
        return {
            name: torch.from_numpy(array.copy()).requires_grad_(self._trained[name])
            for name, array in frame.arrays.items()
        }
