"""A graph server in a process of its own: one shard's site, mail to its peers, and weights from parameter servers.

The driver has it ``leave`` the session before, ``begin`` a session and ``connect`` to the others, then train epoch by
epoch. A new session begins after a fault: the shard and what was gathered once are kept, everything in progress is
dropped. Every call belongs to a session (:mod:`dorylus.runtime.fence`) and touches that session alone.

Parcels and reports as they travel between sites, each in one frame.

The pool of a graph server elsewhere: what it has to tell is kept until the driver asks for it.
"""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dorylus import process_memory
from dorylus.errors import TrainingError
from dorylus.partition import LocalShard
from dorylus.pipeline import Kind, PeerFinished, Task
from dorylus.runtime.cluster import EpochDroppedError, ServerReport
from dorylus.runtime.fence import Fence, PeerLostError, SessionTasks
from dorylus.runtime.job import Job
from dorylus.runtime.node_pool import MakePool, NodePool, PoolNews
from dorylus.runtime.remote_weights import ParameterLine, RemoteWeights
from dorylus.runtime.server_group import GhostsOf, ServerGroup
from dorylus.runtime.server_process import EpochOfSite, ServerProcess, Static
from dorylus.servers import GhostMessage
from dorylus.wire import BETWEEN_SERVERS, Frame, PeerTransport

TRAINING, EVALUATION = "training", "evaluation"


class PeerNetwork:
    """The other sites, one server each, reached by the mail of one session."""

    def __init__(
        self, room: PeerTransport, session: int, me: int, ghosts: Mapping[int, GhostsOf], timeout_s: float
    ) -> None:
        self._room, self._session, self._me, self._timeout_s = room, session, me, timeout_s
        self.ghosts = {server: its for server, its in ghosts.items() if server != me}

    def of(self, name: str) -> "PassElsewhere":
        """As a pass sees them."""
        return PassElsewhere(name, self.ghosts, self._post)

    def _post(self, peer: int, header: Mapping[str, Any], parts: Mapping[str, NDArray[Any]], wait: bool) -> None:
        self._room.post(peer, header, parts, self._timeout_s if wait else None, self._session)

    def receive(self, crews: Mapping[str, ServerGroup], frame: Frame) -> None:
        """Hand what came to the pass it is for."""
        crew, header = crews[frame.header["pass"]], frame.header
        if "report" in header:
            crew.hear(PeerFinished(*header["report"]))
        else:
            crew.receive(self._me, GhostMessage(_task(header["task"]), _parts(frame.arrays)))


class PassElsewhere:
    """The servers elsewhere of one pass."""

    def __init__(self, name: str, ghosts: Mapping[int, GhostsOf], post: Callable[..., None]) -> None:
        self._name, self.ghosts, self._post = name, ghosts, post

    def deliver(self, peer: int, parcel: GhostMessage) -> None:
        """Post a parcel."""
        header = {"pass": self._name, "task": [*parcel.task[:-1], str(parcel.task.kind)]}
        self._post(peer, header, {str(number): part for number, part in enumerate(parcel.parts)}, True)

    def tell(self, report: PeerFinished) -> None:
        """Post a report to all of them."""
        for peer in self.ghosts:
            self._post(peer, {"pass": self._name, "report": list(report)}, {}, False)


def _task(entry: Any) -> Task:
    try:
        epoch, phase, interval, step, kind = entry
        return Task(int(epoch), int(phase), int(interval), int(step), Kind(kind))
    except (TypeError, ValueError) as why:
        raise TrainingError(f"a parcel of no known task came: {why}. All nodes must run the same release.") from why


def _parts(arrays: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.float32], ...]:
    return tuple(arrays[str(number)] for number in range(len(arrays)))


Note = Callable[..., None]


Address = tuple[str, int]
Key = Mapping[str, Any]
Whereabouts = tuple[str, int]  # address of the node, process


@dataclass(frozen=True)
class NodeReport:
    """What one epoch did at a node, and its intervals' parts of the loss."""

    made: EpochOfSite
    losses: Mapping[int, float]
    traffic: Mapping[str, int]  # of weights and gradients
    server: ServerReport
    pool: PoolNews
    refused: int  # messages of other sessions, and of strangers, since the last epoch


@dataclass(frozen=True)
class _NodeSession:
    """What a session has of its own: all of it goes with it."""

    number: int
    site: ServerProcess
    weights: RemoteWeights
    tasks: SessionTasks


class GraphNode:
    """One of ``job.cut.num_servers``."""

    def __init__(self, job: Job, shard: LocalShard, make_pool: MakePool, host: str, secret: bytes) -> None:
        self._job, self._shard, self._host = job, shard, host
        self._me = shard.server
        self._pool = NodePool(make_pool, host)
        self._room = PeerTransport(host, secret, self._me, limits=BETWEEN_SERVERS)
        self._fence, self._lock = Fence(f"graph server {self._me}"), threading.Lock()
        self._session: _NodeSession | None = None  # under the lock
        self._static: Static | None = None
        self._sent_bytes = self._refused = 0  # when an epoch was last reported

    def address(self) -> Address:
        """Where its mail goes."""
        return self._room.address

    def whereabouts(self) -> Whereabouts:
        """Where it runs: the node's address, the process."""
        return self._host, os.getpid()

    def ghosts(self) -> GhostsOf:
        """Which rows of its peers it needs."""
        return self._shard.ghosts, self._shard.out_ghosts

    def leave(self, session: int) -> bool:
        """Be ready for a session: end the one before, wait for its tasks in hand, and give its memory back.

        A task takes no longer than ``deadline_s``. False if one does: it keeps what it works on, and nothing else.
        """
        until = time.monotonic() + self._job.deadline_s
        self._fence.enter(session)
        with self._fence.within(session, "leave"):
            ended = self._take_session()
            try:
                if ended is not None:
                    self._stop(ended)
                alone = self._fence.wait_for_earlier(session, self._job.deadline_s)
            finally:
                if ended is not None:
                    stopped = ended.site.close(max(0.0, until - time.monotonic()))
                    ended.site.forget()
                    gc.collect()  # servers refer to each other: what they kept would stay until somebody looks
                    process_memory.give_back()
            return alone and (ended is None or stopped)

    def begin(
        self,
        session: int,
        epoch: int,
        ghosts: Mapping[int, GhostsOf],
        parameters: Sequence[tuple[str, Key]],
    ) -> None:
        """Make ready for a session that trains from an epoch on; no peer has connected yet."""
        with self._fence.within(session, "begin"), ExitStack() as undo:
            deadline_s = self._job.deadline_s
            around = PeerNetwork(self._room, session, self._me, ghosts, deadline_s)
            servers = []
            for address, key in parameters:
                servers.append(ParameterLine(address, key, session))
                undo.callback(servers[-1].close)
            weights = RemoteWeights(self._job.program, servers, deadline_s)
            tasks = SessionTasks(self._pool.tasks, self._fence, session)
            site = ServerProcess(
                self._job,
                [self._shard],
                tasks,
                weights,
                first_epoch=epoch,
                neighbours=around,
                static=self._static,
            )
            undo.callback(site.close)
            self._static = site.static
            crews = {EVALUATION: site.evaluation, **({} if site.training is None else {TRAINING: site.training})}

            def received(peer: int, frame: Frame) -> None:
                try:
                    around.receive(crews, frame)
                except Exception as error:  # the line's thread has no caller that would hear of it
                    why = f"what server {peer} sent could not be taken: {type(error).__name__}: {error}"
                    site.fail(PeerLostError(why))

            def lost(peer: int, why: str) -> None:
                site.fail(PeerLostError(f"the line between servers {self._me} and {peer} is lost: {why}."))

            with self._lock:
                if not self._fence.is_in(session):  # a later one has begun meanwhile, and found nothing to end
                    raise PeerLostError(f"session {session} was ended while it began.")
                self._session = _NodeSession(session, site, weights, tasks)
                self._room.open(session, received, lost)
            undo.pop_all()

    def connect(self, session: int, addresses: Mapping[int, Address]) -> None:
        """Dial all others, which have begun the session."""
        with self._running(session, "connect"):
            self._room.connect(addresses, session)

    def train_epoch(self, session: int, permit: int | None, exact: bool) -> NodeReport:
        """Train until this server has finished the next epoch."""
        with self._running(session, "train_epoch") as running:
            start = time.perf_counter()
            epoch, made = running.site.train_epoch(permit, exact=exact)
            here = self._report(time.perf_counter() - start)
            shift_s = time.time() - time.perf_counter()  # machines have no other clock in common than the time of day
            of_weights = running.weights.take_losses(epoch), running.weights.take_traffic()
            return NodeReport(made.shifted(shift_s), *of_weights, here, self._pool.take_news(), self._take_refused())

    def outputs(
        self, session: int, layer: int, weights: Mapping[str, Tensor] | None
    ) -> tuple[NDArray[np.float32], int]:
        """A layer's output for the vertices of this server, in the order of its layout; and the peak of its memory."""
        with self._running(session, "outputs") as running:
            blocks = running.site.outputs(layer, running.weights.latest() if weights is None else weights)
            made = np.concatenate([rows for _, rows in blocks()])
            return made, process_memory.peak_bytes()

    def drop_epoch(self, session: int) -> None:
        """Give up the epoch, or the evaluation, in hand: the driver is about to end."""
        with self._fence.within(session, "drop_epoch"), self._lock:
            if self._session is not None:
                self._session.site.fail(EpochDroppedError("the epoch was given up."))

    def pool_news(self, session: int) -> PoolNews:
        """What the pool has to tell."""
        with self._fence.within(session, "pool_news"):
            return self._pool.take_news()

    def settle_pool(self, session: int) -> PoolNews:
        """What the pool has to tell when all it was asked for has come."""
        with self._fence.within(session, "settle_pool"):
            return self._pool.settle()

    def pool_figures(self, session: int) -> Mapping[str, Any]:
        """The pool's figures until now."""
        with self._fence.within(session, "pool_figures"):
            return self._pool.figures()

    def close(self) -> None:
        """Hang up and stop."""
        ended = self._take_session()
        if ended is not None:
            self._stop(ended)
            ended.site.close()
        self._room.close()
        self._pool.close()

    def _take_session(self) -> _NodeSession | None:
        with self._lock:
            session, self._session = self._session, None
            return session

    def _stop(self, session: _NodeSession) -> None:
        """Have nothing of a session begin any more; a task in hand goes on to its end."""
        self._room.hang_up(session.number)
        session.site.fail(PeerLostError("the session was ended."))
        session.tasks.close()
        session.weights.close()

    def _report(self, seconds: float) -> ServerReport:
        before, self._sent_bytes = self._sent_bytes, self._room.sent_bytes
        used = process_memory.resident_bytes(), process_memory.peak_bytes()
        return ServerReport(self._me, self._host, seconds, self._sent_bytes - before, *used)

    def _take_refused(self) -> int:
        before, self._refused = self._refused, self._room.refused
        return self._fence.take_refused() + self._refused - before

    @contextmanager
    def _running(self, session: int, what: str) -> Iterator[_NodeSession]:
        """The session that a call belongs to. Where the call fails, that session is over, and no other: peers lose its
        lines, so that they do not wait for what will never come, and the pool is not left with its calls."""
        with self._fence.within(session, what):
            with self._lock:
                running = self._session
            if running is None or running.number != session:
                raise PeerLostError("no session has begun here: the server was started again since.")
            try:
                yield running
            except BaseException:
                self._room.hang_up(session)
                running.tasks.close()
                raise
