"""A graph server in a process of its own: the ServerProcess of one shard, its peers, and its pool.

The driver calls it in this order: ``leave`` the session before, ``begin`` a session, ``connect`` to the peers, then
``train_epoch`` after epoch. A new session begins after a fault: the shard and the static gathers are kept, everything
in progress is dropped. Every call belongs to a session (:mod:`dorylus.runtime.fence`) and changes that session alone.
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
from dorylus.pools import Invoked, PoolHandle
from dorylus.runtime.fence import Fence, PeerLostError, SessionTasks
from dorylus.runtime.remote_weights import ParameterConnection, RemoteWeights
from dorylus.runtime.runtime import EpochDroppedError, Job, Note, PoolNews, ServerReport
from dorylus.runtime.server_pass import GhostsOf, ServerPass
from dorylus.runtime.server_process import ProcessEpoch, ServerProcess, Static
from dorylus.servers import GhostMessage
from dorylus.wire import BETWEEN_SERVERS, Frame, PeerTransport

Address = tuple[str, int]
Key = Mapping[str, Any]
Whereabouts = tuple[str, int]  # address of the node, process
MakePool = Callable[[str, Note, Callable[[Invoked], None]], PoolHandle]  # for the server at this address


class PeerNetwork:
    """The other graph servers, as one session reaches them."""

    def __init__(
        self, transport: PeerTransport, session: int, me: int, ghosts: Mapping[int, GhostsOf], timeout_s: float
    ) -> None:
        self._transport, self._session, self._me, self._timeout_s = transport, session, me, timeout_s
        self.ghosts = {server: its for server, its in ghosts.items() if server != me}

    def of(self, name: str) -> "PassPeers":
        """The servers that take part in the pass of this name."""
        return PassPeers(name, self.ghosts, self._post)

    def _post(self, peer: int, header: Mapping[str, Any], parts: Mapping[str, NDArray[Any]], wait: bool) -> None:
        self._transport.post(peer, header, parts, self._timeout_s if wait else None, self._session)

    def receive(self, passes: Mapping[str, ServerPass], frame: Frame) -> None:
        """Pass a frame on to the pass that its header names."""
        receiver, header = passes[frame.header["pass"]], frame.header
        if "report" in header:
            receiver.peer_finished(PeerFinished(*header["report"]))
        else:
            receiver.receive(self._me, GhostMessage(_task(header["task"]), _parts(frame.arrays)))


class PassPeers:
    """The servers of one pass in other processes: one frame for every ghost message and every report."""

    def __init__(self, name: str, ghosts: Mapping[int, GhostsOf], post: Callable[..., None]) -> None:
        self._name, self.ghosts, self._post = name, ghosts, post

    def deliver(self, peer: int, message: GhostMessage) -> None:
        """Send a message to a peer."""
        header = {"pass": self._name, "task": [*message.task[:-1], str(message.task.kind)]}
        self._post(peer, header, {str(number): part for number, part in enumerate(message.parts)}, True)

    def report(self, report: PeerFinished) -> None:
        """Send a report to all peers, without blocking."""
        for peer in self.ghosts:
            self._post(peer, {"pass": self._name, "report": list(report)}, {}, False)


def _task(entry: Any) -> Task:
    try:
        epoch, phase, interval, step, kind = entry
        return Task(int(epoch), int(phase), int(interval), int(step), Kind(kind))
    except (TypeError, ValueError) as why:
        raise TrainingError(
            f"a ghost message names no known task: {why}. All nodes must run the same release."
        ) from why


def _parts(arrays: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.float32], ...]:
    return tuple(arrays[str(number)] for number in range(len(arrays)))


class NodePool:
    """A server's own pool; keeps its news until the driver fetches them."""

    def __init__(self, make: MakePool, host: str) -> None:
        self._lock = threading.Lock()
        self._notes: list[tuple[str, dict[str, Any]]] = []
        self._invoked: list[Invoked] = []
        self._handle = make(host, self._note, self._note_invocation)
        self.tasks = self._handle.pool

    def take_news(self) -> PoolNews:
        """The news since the last call."""
        with self._lock:
            news = PoolNews(self._notes, self._invoked)
            self._notes, self._invoked = [], []
            return news

    def settle(self) -> PoolNews:
        """Wait until the pool has answered every call; the news then."""
        self._handle.settle()
        return self.take_news()

    def figures(self) -> Mapping[str, Any]:
        """The pool's figures so far."""
        return self._handle.figures()

    def close(self) -> None:
        """Stop the pool."""
        self.tasks.close()

    def _note(self, what: str, **details: Any) -> None:
        with self._lock:
            self._notes.append((what, details))

    def _note_invocation(self, invocation: Invoked) -> None:
        with self._lock:
            self._invoked.append(invocation)


def joined_figures(each: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of all servers as one: numbers are added, equal words kept once."""
    joined: dict[str, Any] = {}
    for name in each[0] if each else ():
        values = [figures.get(name) for figures in each]
        if all(isinstance(value, int | float) for value in values):
            joined[name] = sum(values)
        else:
            joined[name] = values[0] if len(set(map(str, values))) == 1 else ", ".join(sorted(set(map(str, values))))
    return joined


@dataclass(frozen=True)
class NodeReport:
    """One epoch of a graph server, and its intervals' parts of the loss."""

    done: ProcessEpoch
    losses: Mapping[int, float]
    traffic: Mapping[str, int]  # of weights and gradients
    server: ServerReport
    pool: PoolNews
    refused: int  # messages of other sessions and of unknown senders since the last epoch


@dataclass(frozen=True)
class _NodeSession:
    """What belongs to one session and ends with it."""

    number: int
    process: ServerProcess
    weights: RemoteWeights
    tasks: SessionTasks


class GraphNode:
    """One of the ``job.cut.num_servers`` graph servers of a run."""

    def __init__(self, job: Job, shard: LocalShard, make_pool: MakePool, host: str, secret: bytes) -> None:
        self._job, self._shard, self._host = job, shard, host
        self._me = shard.server
        self._pool = NodePool(make_pool, host)
        self._transport = PeerTransport(host, secret, self._me, limits=BETWEEN_SERVERS)
        self._fence, self._lock = Fence(f"graph server {self._me}"), threading.Lock()
        self._session: _NodeSession | None = None  # under the lock
        self._static: Static | None = None
        self._sent_bytes = self._refused = 0  # when an epoch was last reported

    def address(self) -> Address:
        """Where peers connect to."""
        return self._transport.address

    def whereabouts(self) -> Whereabouts:
        """The address of its node and the number of its process."""
        return self._host, os.getpid()

    def ghosts(self) -> GhostsOf:
        """The rows of its peers that it needs."""
        return self._shard.ghosts, self._shard.out_ghosts

    def leave(self, session: int) -> bool:
        """Prepare for a session: end the one before, wait for its running tasks, and free its memory.

        A task takes at most ``deadline_s``. False if one takes longer: only the memory that it uses is kept.
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
                    stopped = ended.process.close(max(0.0, until - time.monotonic()))
                    ended.process.release_memory()
                    gc.collect()  # servers refer to each other, so no reference count frees them
                    process_memory.give_back()
            return alone and (ended is None or stopped)

    def begin(
        self,
        session: int,
        epoch: int,
        ghosts: Mapping[int, GhostsOf],
        parameters: Sequence[tuple[str, Key]],
    ) -> None:
        """Prepare a session that trains from an epoch on; no peer has connected yet."""
        with self._fence.within(session, "begin"), ExitStack() as undo:
            deadline_s = self._job.deadline_s
            network = PeerNetwork(self._transport, session, self._me, ghosts, deadline_s)
            servers = []
            for address, key in parameters:
                servers.append(ParameterConnection(address, key, session))
                undo.callback(servers[-1].close)
            weights = RemoteWeights(self._job.program, servers, deadline_s)
            tasks = SessionTasks(self._pool.tasks, self._fence, session)
            process = ServerProcess(
                self._job,
                [self._shard],
                tasks,
                weights,
                first_epoch=epoch,
                remote=network.of,
                static=self._static,
            )
            undo.callback(process.close)
            self._static = process.static
            passes = process.passes()

            def received(peer: int, frame: Frame) -> None:
                try:
                    network.receive(passes, frame)
                except Exception as error:  # an exception would end the receiving thread
                    why = f"a message of server {peer} could not be processed: {type(error).__name__}: {error}"
                    process.fail(PeerLostError(why))

            def lost(peer: int, why: str) -> None:
                process.fail(PeerLostError(f"the connection between servers {self._me} and {peer} is lost: {why}."))

            with self._lock:
                if not self._fence.is_in(session):  # a later session began before this one could be ended
                    raise PeerLostError(f"session {session} was ended while it began.")
                self._session = _NodeSession(session, process, weights, tasks)
                self._transport.open(session, received, lost)
            undo.pop_all()

    def connect(self, session: int, addresses: Mapping[int, Address]) -> None:
        """Connect to all peers, which have begun the session."""
        with self._running(session, "connect"):
            self._transport.connect(addresses, session)

    def synchronise(self, session: int) -> None:
        """Make epochs synchronous from the next one on, which no interval has started."""
        with self._running(session, "synchronise") as running:
            running.process.synchronise()

    def train_epoch(self, session: int, permit: int | None) -> NodeReport:
        """Train until this server has finished the next epoch."""
        with self._running(session, "train_epoch") as running:
            start = time.perf_counter()
            epoch, done = running.process.train_epoch(permit)
            server = self._report(time.perf_counter() - start)
            shift_s = time.time() - time.perf_counter()  # the time of day is the only clock that machines share
            of_weights = running.weights.take_losses(epoch), running.weights.take_traffic()
            return NodeReport(done.shifted(shift_s), *of_weights, server, self._pool.take_news(), self._take_refused())

    def outputs(
        self, session: int, layer: int, weights: Mapping[str, Tensor] | None
    ) -> tuple[NDArray[np.float32], int]:
        """A layer's output for the vertices of this server, in the order of its layout, and its peak memory."""
        with self._running(session, "outputs") as running:
            blocks = running.process.outputs(layer, running.weights.latest() if weights is None else weights)
            rows_here = np.concatenate([rows for _, rows in blocks()])
            return rows_here, process_memory.peak_bytes()

    def drop_epoch(self, session: int) -> None:
        """Drop the epoch or evaluation in progress: the driver is about to end."""
        with self._fence.within(session, "drop_epoch"), self._lock:
            if self._session is not None:
                self._session.process.fail(EpochDroppedError("the epoch was dropped."))

    def pool_news(self, session: int) -> PoolNews:
        """The pool's news since the last call."""
        with self._fence.within(session, "pool_news"):
            return self._pool.take_news()

    def settle_pool(self, session: int) -> PoolNews:
        """The pool's news once it has answered every call."""
        with self._fence.within(session, "settle_pool"):
            return self._pool.settle()

    def pool_figures(self, session: int) -> Mapping[str, Any]:
        """The pool's figures so far."""
        with self._fence.within(session, "pool_figures"):
            return self._pool.figures()

    def close(self) -> None:
        """Disconnect and stop."""
        ended = self._take_session()
        if ended is not None:
            self._stop(ended)
            ended.process.close()
        self._transport.close()
        self._pool.close()

    def _take_session(self) -> _NodeSession | None:
        with self._lock:
            session, self._session = self._session, None
            return session

    def _stop(self, session: _NodeSession) -> None:
        """Start nothing more of a session; a task that runs is not interrupted."""
        self._transport.disconnect(session.number)
        session.process.fail(PeerLostError("the session was ended."))
        session.tasks.close()
        session.weights.close()

    def _report(self, seconds: float) -> ServerReport:
        before, self._sent_bytes = self._sent_bytes, self._transport.sent_bytes
        used = process_memory.resident_bytes(), process_memory.peak_bytes()
        return ServerReport(self._me, self._host, seconds, self._sent_bytes - before, *used)

    def _take_refused(self) -> int:
        before, self._refused = self._refused, self._transport.refused
        return self._fence.take_refused() + self._refused - before

    @contextmanager
    def _running(self, session: int, what: str) -> Iterator[_NodeSession]:
        """The session that a call belongs to; if the call fails, that session is over, and no other.

        Its connections are closed, so that its peers stop waiting, and its calls are cancelled on the pool.
        """
        with self._fence.within(session, what):
            with self._lock:
                running = self._session
            if running is None or running.number != session:
                raise PeerLostError("no session has begun here: the server was restarted.")
            try:
                yield running
            except BaseException:
                self._transport.disconnect(session)
                running.tasks.close()
                raise
