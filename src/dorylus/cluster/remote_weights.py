"""The weights as a graph server in another process than the parameter servers' has them."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dorylus.cluster.crew import BACKWARD
from dorylus.cluster.parameter_node import slices_of
from dorylus.pipeline import Kind, Task
from dorylus.saga.dense import Call, Reply
from dorylus.wire import Client, ClientKeys, Frame

_KEPT_VERSIONS = 8
_CONNECT_S = 5.0  # a server that cannot be dialled for so long is gone


class RemoteWeights:
    """Pulls, pushes and finishes at all parameter servers, each of which holds its own parameters.

    A version is fetched once, however many intervals use it. Losses are kept for whoever reports the epoch.
    """

    def __init__(self, program: nn.Module, servers: Sequence["RemoteServer"], timeout_s: float) -> None:
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

    def pull(self, task: Task) -> Mapping[str, Tensor]:
        """The version that the task's interval has pinned for this epoch."""
        at = task.interval, task.epoch
        with self._lock:
            if at in self._pinned:
                return self._pinned[at]
        weights: dict[str, Tensor] = {}
        for server in self._servers:
            weights |= server.pull(task, self._as_weights, self._timeout_s)
        with self._lock:
            self._traffic["weights"] += sum(server.take_fetched() for server in self._servers)
            return self._pinned.setdefault(at, weights)

    def latest(self) -> dict[str, Tensor]:
        """The latest version."""
        weights: dict[str, Tensor] = {}
        for server in self._servers:
            weights |= self._as_weights(server.ask({"what": "latest"}, {}, self._timeout_s))
        return weights

    def replied(self, task: Task, call: Call, reply: Reply) -> None:
        """Push the weight gradients, note the loss."""
        if task.kind in BACKWARD:
            self._push(task, reply.weight_grads)
        with self._lock:
            self._traffic["weight_gradients"] += sum(grad.nbytes for grad in reply.weight_grads.values())
            if task.kind is Kind.LOSS:
                self._losses[task.epoch][task.interval] = reply.loss

    def finish(self, task: Task) -> None:
        """The interval has pushed all its gradients of this epoch."""
        for server in self._servers:
            server.ask({"what": "finish", "interval": task.interval, "epoch": task.epoch}, {}, self._timeout_s)
        with self._lock:
            self._pinned.pop((task.interval, task.epoch), None)

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

    def _push(self, task: Task, grads: Mapping[str, Tensor]) -> None:
        header = {"what": "push", "interval": task.interval, "epoch": task.epoch, "step": task.step}
        for number, server in enumerate(self._servers):
            own = {name: grad.contiguous().numpy() for name, grad in grads.items() if self._owner[name] == number}
            server.ask(header, own, self._timeout_s)

    def _as_weights(self, frame: Frame) -> dict[str, Tensor]:
        return {
            name: torch.from_numpy(array.copy()).requires_grad_(self._trained[name])
            for name, array in frame.arrays.items()
        }


class RemoteServer:
    """One parameter server, dialled from here; any thread may ask."""

    def __init__(self, address: str, key: Mapping[str, object]) -> None:
        self._client = Client(address, ClientKeys.from_header(key))
        self._lock = threading.Lock()
        self._versions: dict[tuple[int, ...], dict[str, Tensor]] = {}
        self._fetched = 0

    def ask(self, header: Mapping[str, object], arrays: Mapping[str, NDArray[Any]], timeout_s: float) -> Frame:
        """Its answer."""
        with self._lock:
            return self._request(header, arrays, timeout_s)

    def pull(self, task: Task, read: Callable[[Frame], dict[str, Tensor]], timeout_s: float) -> Mapping[str, Tensor]:
        """Its weights for a task, fetched unless that version is at hand."""
        with self._lock:
            header = {"what": "pull", "interval": task.interval, "epoch": task.epoch, "known": list(self._versions)}
            frame = self._request(header, {}, timeout_s)
            version = tuple(frame.header["version"])
            if version not in self._versions:
                self._versions[version] = read(frame)
                self._fetched += sum(array.nbytes for array in frame.arrays.values())
                while len(self._versions) > _KEPT_VERSIONS:
                    del self._versions[next(iter(self._versions))]
            return self._versions[version]

    def _request(self, header: Mapping[str, object], arrays: Mapping[str, NDArray[Any]], timeout_s: float) -> Frame:
        return self._client.receive(self._client.send(header, arrays, min(_CONNECT_S, timeout_s)), timeout_s)

    def take_fetched(self) -> int:
        """Bytes of weights fetched since this was last asked."""
        with self._lock:
            fetched, self._fetched = self._fetched, 0
            return fetched

    def close(self) -> None:
        """Hang up."""
        self._client.close()
