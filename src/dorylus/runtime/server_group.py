"""The graph servers of one plan in this process: wired to each other, to the weights and to the pool."""

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
from dorylus.runtime.cluster import Delivery, total_loss
from dorylus.runtime.engine import Engine, EnginePass, ServerRuntime, explained
from dorylus.saga import Call, Reply
from dorylus.servers import GhostMessage, GraphServer, ParameterServers, Peers

GhostsOf = tuple[Ghosts, Ghosts]  # of one server: forward, backward
BACKWARD = frozenset({Kind.LOSS, Kind.GRAD_APPLY_VERTEX, Kind.GRAD_APPLY_EDGE})  # what makes weight gradients


class Weights(Protocol):
    """Where the tasks of a pass have their weights from, and what becomes of their gradients."""

    def pull(self, task: Task) -> Mapping[str, Tensor]:
        """The weights a task works with."""

    def replied(self, task: Task, call: Call, reply: Reply) -> None:
        """A dense task has answered."""

    def finish(self, task: Task, done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        """WU of an interval; tells when it is over, or that it failed."""


class FixedWeights:
    """One version for all tasks of a pass: evaluation."""

    def __init__(self) -> None:
        self.weights: Mapping[str, Tensor] = {}

    def pull(self, task: Task) -> Mapping[str, Tensor]:
        """The one version there is."""
        return self.weights

    def replied(self, task: Task, call: Call, reply: Reply) -> None:
        """Nothing to keep."""

    def finish(self, task: Task, done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        """A pass that only looks forward has no weight update."""
        raise TrainingError(f"{task} updates weights in a pass that only evaluates.")


class TrainedWeights:
    """The parameter servers' weights, as training uses them; keeps the losses and counts what travels."""

    def __init__(self, parameters: ParameterServers) -> None:
        self._parameters = parameters
        self._losses: dict[int, dict[int, float]] = defaultdict(dict)
        self._lock = threading.Lock()
        self.traffic: Counter[str] = Counter()

    def pull(self, task: Task) -> Mapping[str, Tensor]:
        """The version that the task's interval has pinned for this epoch."""
        return self._parameters.pull(task.interval, task.epoch)

    def replied(self, task: Task, call: Call, reply: Reply) -> None:
        """Push the weight gradients, note the loss."""
        if task.kind in BACKWARD:
            self._parameters.push(task.interval, task.epoch, task.step, reply.weight_grads)
        with self._lock:
            self.traffic["weights"] += sum(call.weights[name].nbytes for name in call.body.weight_names)
            self.traffic["weight_gradients"] += sum(grad.nbytes for grad in reply.weight_grads.values())
            if task.kind is Kind.LOSS:
                self._losses[task.epoch][task.interval] = reply.loss

    def finish(self, task: Task, done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        """The interval has pushed all its gradients of this epoch."""
        self._parameters.finish(task.interval, task.epoch)
        done()

    def take_loss(self, epoch: int) -> float:
        """The loss of a finished epoch: the sum over intervals, in their order."""
        return total_loss(self._losses.pop(epoch))


class RemotePeers(Protocol):
    """The servers of a pass that live in other processes."""

    @property
    def ghosts(self) -> Mapping[int, GhostsOf]:
        """The ghosts of each of them."""

    def deliver(self, peer: int, parcel: GhostMessage) -> None:
        """See to it that a peer gets a parcel."""

    def tell(self, report: PeerFinished) -> None:
        """Tell all of them of something a server here has finished; does not wait."""


class ServerGroup:
    """The graph servers of one plan that live here, and the pass that runs them.

    A parcel for a peer is put straight into its ghosts: in one process that is all the network there is. Those for
    servers in other processes are theirs to deliver.
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
        elsewhere: RemotePeers | None = None,
    ) -> None:
        self._engine, self._pool, self._weights, self._elsewhere = engine, pool, weights, elsewhere
        self.deliveries: list[Delivery] = []
        bounds = shards[0].partition_plan.bounds
        ghosts = {shard.server: (shard.ghosts, shard.out_ghosts) for shard in shards}
        ghosts |= {} if elsewhere is None else elsewhere.ghosts
        self.servers: dict[int, GraphServer] = {}
        stations: dict[int, ServerRuntime] = {}
        for shard in shards:
            peers = Peers(bounds, *_sends(shard, ghosts, everything), partial(self._deliver, shard.server))
            server = self.servers[shard.server] = make_server(shard, peers)
            scheduler = Scheduler(schedule, shard.reads(), server=shard.server, bounds=bounds, first_epoch=first_epoch)
            stations[shard.server] = ServerRuntime(scheduler, partial(self._execute, server))
        self.work = (
            EnginePass(stations, first_epoch)
            if elsewhere is None
            else EnginePass(stations, first_epoch, elsewhere.tell)
        )

    def receive(self, server: int, parcel: GhostMessage) -> None:
        """Put a parcel that came from elsewhere into the ghosts of a server here."""
        self.servers[server].receive(parcel)
        self._engine.tell(self.work, server, Arrived(parcel.task))

    def hear(self, report: PeerFinished) -> None:
        """Tell the servers here of what one elsewhere has finished."""
        for server in self.servers:
            self._engine.tell(self.work, server, report)

    def forget(self) -> None:
        """Let go of the servers and their matrices: the pass has failed, though a task of it may still be at work."""
        for server in self.servers.values():
            server.forget()
        self.servers.clear()
        self.work.stations.clear()

    def _deliver(self, server: int, peer: int, parcel: GhostMessage) -> None:
        start, is_here = time.perf_counter(), peer in self.servers
        if is_here:
            self.servers[peer].receive(parcel)
        else:
            assert self._elsewhere is not None
            self._elsewhere.deliver(peer, parcel)
        self.deliveries.append(Delivery(server, peer, parcel.num_bytes, start, time.perf_counter()))
        if is_here:
            self._engine.tell(self.work, peer, Arrived(parcel.task))

    def _execute(
        self, server: GraphServer, task: Task, done: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:

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

    def _submit(
        self, server: GraphServer, task: Task, over: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        call = server.call(task, self._weights.pull(task))

        def accept(reply: Reply) -> None:
            try:  # a pool may answer from a thread of its own, where nobody would hear of the error
                server.accept(task, reply)
                self._weights.replied(task, call, reply)
                over()
            except Exception as error:
                failed(error)

        self._pool.submit(call, accept, lambda error: failed(_in_body(call, error)))


def _sends(
    shard: LocalShard, ghosts: Mapping[int, GhostsOf], everything: bool
) -> tuple[dict[int, SendList], dict[int, SendList]]:
    """What a server sends forward and backward to each of its peers."""
    forward, backward = {}, {}
    for peer in ghosts.keys() - {shard.server}:
        into, out_of = ghosts[peer]
        forward[peer] = shard.send_list(into.everything() if everything else into)
        backward[peer] = shard.send_list(out_of)
    return forward, backward


def _in_body(call: Call, error: BaseException) -> DorylusError:
    """An error of a dense body, told in the words of whoever wrote the layer."""
    where = f"on interval {call.task.interval} in epoch {call.task.epoch + 1}"
    return explained(f"{call.body.label} failed {where}", error)
