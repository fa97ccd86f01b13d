"""A graph server in a process of its own: one shard's site, mail to its peers, and weights from elsewhere.

It is told what to do by whoever drives the run: ``begin`` a session, ``connect`` to the others, then epoch by epoch. A
new session begins after a fault: the shard and what was gathered once are kept, everything in progress is dropped.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dorylus.cluster import memory
from dorylus.cluster.cluster import ServerReport
from dorylus.cluster.crew import GhostsOf
from dorylus.cluster.job import Job
from dorylus.cluster.neighbourhood import EVALUATION, TRAINING, Neighbourhood
from dorylus.cluster.node_pool import MakePool, NodePool, PoolNews
from dorylus.cluster.parameter_line import ParameterLine
from dorylus.cluster.remote_weights import RemoteWeights
from dorylus.cluster.site import EpochOfSite, Site, Static
from dorylus.errors import TrainingError
from dorylus.partition import Arrangement
from dorylus.wire import Frame
from dorylus.wire.frames import BETWEEN_SERVERS
from dorylus.wire.mail import MailRoom

Address = tuple[str, int]
Key = Mapping[str, Any]
Whereabouts = tuple[str, int]  # address of the node, process


class PeerLostError(TrainingError):
    """A server that this one exchanges rows with is gone, or the way to it."""


@dataclass(frozen=True)
class NodeReport:
    """What one epoch did at a node, and its intervals' parts of the loss."""

    made: EpochOfSite
    losses: Mapping[int, float]
    traffic: Mapping[str, int]  # of weights and gradients
    server: ServerReport
    pool: PoolNews


class GraphNode:
    """One of ``job.cut.num_servers``."""

    def __init__(self, job: Job, shard: Arrangement, make_pool: MakePool, host: str, secret: bytes) -> None:
        self._job, self._shard, self._host = job, shard, host
        self._me = shard.server
        self._pool = NodePool(make_pool, host)
        self._room = MailRoom(host, secret, self._me, limits=BETWEEN_SERVERS)
        self._session: tuple[Site, RemoteWeights] | None = None
        self._static: Static | None = None
        self._sent_bytes = 0  # when an epoch was last reported

    def address(self) -> Address:
        """Where its mail goes."""
        return self._room.address

    def whereabouts(self) -> Whereabouts:
        """Where it runs: the node's address, the process."""
        return self._host, os.getpid()

    def ghosts(self) -> GhostsOf:
        """Which rows of its peers it needs."""
        return self._shard.ghosts, self._shard.out_ghosts

    def begin(
        self,
        session: int,
        epoch: int,
        ghosts: Mapping[int, GhostsOf],
        parameters: Sequence[tuple[str, Key]],
    ) -> None:
        """Make ready for a session that trains from an epoch on; nobody has connected yet."""
        self._end_session()
        deadline_s = self._job.deadline_s
        around = Neighbourhood(self._room, self._me, ghosts, deadline_s)
        servers = [ParameterLine(address, key) for address, key in parameters]
        weights = RemoteWeights(self._job.program, servers, deadline_s)
        site = Site(
            self._job,
            [self._shard],
            self._pool.tasks,
            weights,
            first_epoch=epoch,
            neighbours=around,
            static=self._static,
        )
        self._session, self._static = (site, weights), site.static
        crews = {EVALUATION: site.evaluation, **({} if site.training is None else {TRAINING: site.training})}

        def received(peer: int, frame: Frame) -> None:
            try:
                around.receive(crews, frame)
            except Exception as error:  # the line's thread has nobody to tell
                site.fail(PeerLostError(f"what server {peer} sent could not be taken: {type(error).__name__}: {error}"))

        def lost(peer: int, why: str) -> None:
            site.fail(PeerLostError(f"the line between servers {self._me} and {peer} is lost: {why}."))

        self._room.open(session, received, lost)

    def connect(self, addresses: Mapping[int, Address]) -> None:
        """Dial all others, which have begun the session."""
        self._room.connect(addresses)

    def train_epoch(self, permit: int | None, exact: bool) -> NodeReport:
        """Train until this server has finished the next epoch."""
        site, weights = self._running()
        start = time.perf_counter()
        with self._peers_told():
            epoch, made = site.train_epoch(permit, exact=exact)
        here = self._report(time.perf_counter() - start)
        shift_s = time.time() - time.perf_counter()  # machines have no other clock in common than the time of day
        of_weights = weights.take_losses(epoch), weights.take_traffic()
        return NodeReport(made.shifted(shift_s), *of_weights, here, self._pool.take_news())

    def outputs(self, layer: int, weights: Mapping[str, Tensor] | None) -> NDArray[np.float32]:
        """A layer's output for the vertices of this server, in the order of its layout."""
        site, pulled = self._running()
        with self._peers_told():
            blocks = site.outputs(layer, pulled.latest() if weights is None else weights)
            return np.concatenate([rows for _, rows in blocks()])

    def pool_news(self) -> PoolNews:
        """What the pool has to tell."""
        return self._pool.take_news()

    def settle_pool(self) -> PoolNews:
        """What the pool has to tell when all it was asked for has come."""
        return self._pool.settle()

    def pool_figures(self) -> Mapping[str, Any]:
        """The pool's figures until now."""
        return self._pool.figures()

    def close(self) -> None:
        """Hang up and stop."""
        self._end_session()
        self._room.close()
        self._pool.close()

    def _end_session(self) -> None:
        self._room.hang_up()
        if self._session is not None:
            site, weights = self._session
            site.fail(PeerLostError("the session was ended."))
            weights.close()  # first: a thread of the site may wait for it
            site.close()
        self._session = None

    def _report(self, seconds: float) -> ServerReport:
        before, self._sent_bytes = self._sent_bytes, self._room.sent_bytes
        used = memory.resident_bytes(), memory.peak_bytes()
        return ServerReport(self._me, self._host, seconds, self._sent_bytes - before, *used)

    @contextmanager
    def _peers_told(self) -> Iterator[None]:
        """Whatever goes wrong here, peers need not wait for what will never come: they lose the line."""
        try:
            yield
        except BaseException:
            self._room.hang_up()
            raise

    def _running(self) -> tuple[Site, RemoteWeights]:
        if self._session is None:
            raise PeerLostError("no session has begun here: the server was started again since.")
        return self._session
