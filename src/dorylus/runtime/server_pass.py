"""One pass of the graph servers in this process: their schedulers, tasks and weights, and the rows they exchange."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from torch import Tensor

from dorylus.errors import DorylusError, TrainingError
from dorylus.partition import Ghosts, LocalShard, SendList
from dorylus.pipeline import DENSE, Arrived, Kind, PeerFinished, Schedule, Scheduler, Task
from dorylus.pools import TensorPool
from dorylus.runtime.engine import Done, Engine, EnginePass, Failed, explained
from dorylus.runtime.runtime import Delivery, total_loss
from dorylus.saga import Call, Reply
from dorylus.servers import GhostMessage, GraphServer, ParameterServers, Peers

GhostsOf = tuple[Ghosts, Ghosts]  # of one server: forward, backward
BACKWARD = frozenset({Kind.LOSS, Kind.GRAD_APPLY_VERTEX, Kind.GRAD_APPLY_EDGE})  # the tasks that make weight gradients


class Weights(Protocol):
    """Provides the weights of a pass's tasks, and takes their gradients."""

    def pull(self, task: Task) -> Mapping[str, Tensor]:
        """The weights that a task uses."""

    def replied(self, task: Task, call: Call, reply: Reply) -> None:
        """Take the reply of a dense task."""

    def finish(self, task: Task, done: Done, failed: Failed) -> None:
        """Carry out the weight update of an interval, then call ``done`` or ``failed``."""


class FixedWeights:
    """One version for all tasks of a pass: evaluation."""

    def __init__(self) -> None:
        self.weights: Mapping[str, Tensor] = {}

    def pull(self, task: Task) -> Mapping[str, Tensor]:
        """The one version."""
        return self.weights

    def replied(self, task: Task, call: Call, reply: Reply) -> None:
        """Keep nothing."""

    def finish(self, task: Task, done: Done, failed: Failed) -> None:
        """Refuse: an evaluation updates no weights."""
        raise TrainingError(f"{task} updates weights in a pass that only evaluates.")


class TrainedWeights:
    """The weights of parameter servers in this process; keeps the losses, counts the bytes of weights and gradients."""

    def __init__(self, parameters: ParameterServers) -> None:
        self._parameters = parameters
        self._losses: dict[int, dict[int, float]] = defaultdict(dict)
        self._lock = threading.Lock()
        self.traffic: Counter[str] = Counter()

    def pull(self, task: Task) -> Mapping[str, Tensor]:
        """The version that the task's interval has pinned for this epoch."""
        return self._parameters.pull(task.interval, task.epoch)

    def replied(self, task: Task, call: Call, reply: Reply) -> None:
        """Push the weight gradients and keep the loss."""
        if task.kind in BACKWARD:
            self._parameters.push(task.interval, task.epoch, task.step, reply.weight_grads)
        with self._lock:
            self.traffic["weights"] += sum(call.weights[name].nbytes for name in call.body.weight_names)
            self.traffic["weight_gradients"] += sum(grad.nbytes for grad in reply.weight_grads.values())
            if task.kind is Kind.LOSS:
                self._losses[task.epoch][task.interval] = reply.loss

    def finish(self, task: Task, done: Done, failed: Failed) -> None:
        """The interval has pushed all its gradients of this epoch."""
        self._parameters.finish(task.interval, task.epoch)
        done()

    def take_loss(self, epoch: int) -> float:
        """The loss of a finished epoch: the sum over intervals, in their order."""
        return total_loss(self._losses.pop(epoch))


class RemotePeers(Protocol):
    """The servers of a pass that are in other processes."""

    @property
    def ghosts(self) -> Mapping[int, GhostsOf]:
        """The ghosts of each of them."""

    def deliver(self, peer: int, message: GhostMessage) -> None:
        """Send a message to a peer."""

    def report(self, report: PeerFinished) -> None:
        """Report to all of them what a server here has finished, without blocking."""


class ServerPass(EnginePass):
    """Training or evaluation: one graph server for each shard here, and the tasks of all of them.

    A message to a peer in this process is put straight into the peer's ghosts. ``remote`` delivers the others.
    """

    def __init__(
        self,
        shards: Sequence[LocalShard],
        engine: Engine,
        pool: TensorPool,
        weights: Weights,
        schedule: Schedule,
        make_server: Callable[[LocalShard, Peers], GraphServer],
        *,
        everything: bool,
        first_epoch: int = 0,
        remote: RemotePeers | None = None,
    ) -> None:
        self._engine, self._pool, self._weights, self._remote = engine, pool, weights, remote
        self.deliveries: list[Delivery] = []
        bounds = shards[0].partition_plan.bounds
        ghosts = {shard.server: (shard.ghosts, shard.out_ghosts) for shard in shards}
        ghosts |= {} if remote is None else remote.ghosts
        self.servers: dict[int, GraphServer] = {}
        schedulers: dict[int, Scheduler] = {}
        for shard in shards:
            peers = Peers(bounds, *_sends(shard, ghosts, everything), partial(self._deliver, shard.server))
            self.servers[shard.server] = make_server(shard, peers)
            schedulers[shard.server] = Scheduler(
                schedule, shard.reads(), server=shard.server, bounds=bounds, first_epoch=first_epoch
            )
        super().__init__(schedulers, self._execute, first_epoch, None if remote is None else remote.report)

    def receive(self, server: int, message: GhostMessage) -> None:
        """Put a message from another process into the ghosts of a server here."""
        self.servers[server].receive(message)
        self._engine.handle(self, server, Arrived(message.task))

    def peer_finished(self, report: PeerFinished) -> None:
        """Pass a report from another process to the schedulers here."""
        for server in self.servers:
            self._engine.handle(self, server, report)

    def release_memory(self) -> None:
        """Release the servers and their matrices after a failed pass, of which a task may still run."""
        for server in self.servers.values():
            server.release_memory()
        self.servers.clear()
        self.schedulers.clear()

    def _deliver(self, server: int, peer: int, message: GhostMessage) -> None:
        start, is_here = time.perf_counter(), peer in self.servers
        if is_here:
            self.servers[peer].receive(message)
        else:
            assert self._remote is not None
            self._remote.deliver(peer, message)
        self.deliveries.append(Delivery(server, peer, message.num_bytes, start, time.perf_counter()))
        if is_here:
            self._engine.handle(self, peer, Arrived(message.task))

    def _execute(self, number: int, task: Task, done: Done, failed: Failed) -> None:
        server = self.servers[number]

        def over() -> None:
            server.finished(task)
            done()

        if task.kind in DENSE:
            self._submit(server, task, over, failed)
        elif task.kind is Kind.WEIGHT_UPDATE:
            self._weights.finish(task, over, failed)
        else:
            server.run(task)
            over()

    def _submit(self, server: GraphServer, task: Task, over: Done, failed: Failed) -> None:
        call = server.call(task, self._weights.pull(task))

        def accept(reply: Reply) -> None:
            try:  # the pool's thread may run this, and would lose an exception
                server.accept(task, reply)
                self._weights.replied(task, call, reply)
                over()
            except Exception as error:
                failed(error)

        self._pool.submit(call, accept, lambda error: failed(_in_body(call, error)))


def _sends(
    shard: LocalShard, ghosts: Mapping[int, GhostsOf], everything: bool
) -> tuple[dict[int, SendList], dict[int, SendList]]:
    """The rows that a server sends forward and backward to each of its peers."""
    forward, backward = {}, {}
    for peer in ghosts.keys() - {shard.server}:
        into, out_of = ghosts[peer]
        forward[peer] = shard.send_list(into.everything() if everything else into)
        backward[peer] = shard.send_list(out_of)
    return forward, backward


def _in_body(call: Call, error: BaseException) -> DorylusError:
    """An error of a dense body; its message names the user's layer."""
    where = f"on interval {call.task.interval} in epoch {call.task.epoch + 1}"
    return explained(f"{call.body.label} failed {where}", error)
