"""A cluster whose servers live in other processes: the driver's side, whatever engine runs them.

Every epoch is one call to each graph server. After a fault everybody begins a new session from the last state that was
kept, and the epochs since are trained again: in a synchronous run that gives the same weights to the last bit.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from torch import Tensor

from dorylus.runtime.cluster import (
    EpochDroppedError,
    EpochReport,
    NotRevivedError,
    Outputs,
    ServersLostError,
    total_loss,
)
from dorylus.runtime.graph_node import NodeReport
from dorylus.runtime.job import Job
from dorylus.runtime.node_pool import PoolNews, joined_figures
from dorylus.servers import PSState, join_states

BACK_OFF_S = 1.0

T = TypeVar("T")
Note = Callable[..., None]


def _unnoted(*told: Any, **details: Any) -> None:
    """Nobody wants to know."""


class Servers(Protocol):
    """Some servers of one kind, wherever an engine has put them."""

    def __len__(self) -> int: ...

    def call(self, method: str, *arguments: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Call a method of all of them at once, with these arguments, or with those of ``each``, and give what they
        answer. Raises :class:`ServersLostError` when one is gone or loses another."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of all of them, and do not wait: what :meth:`answers` takes."""

    def answers(self, asked: Any) -> list[Any]:
        """What they answer, as :meth:`call` gives it."""

    def revive(self) -> None:
        """See to it that all of them are there again; :class:`NotRevivedError` when they are not in time."""

    def close(self) -> None:
        """End them."""


class RemoteCluster:
    """Drives graph servers and parameter servers that live elsewhere.

    ``keep_every``: after how many epochs the parameter servers' state is fetched, to go on from after a fault.
    ``patience``: how many faults in a row, with no epoch finished in between, are not the end. ``note`` hears what
    becomes of the servers, ``hear`` what their pools have to tell.
    """

    def __init__(
        self,
        job: Job,
        graphs: Servers,
        parameters: Servers,
        *,
        keep_every: int = 1,
        patience: int = 5,
        note: Note = _unnoted,
        hear: Callable[[PoolNews], None] = _unnoted,
    ) -> None:
        self._job, self._graphs, self._parameters = job, graphs, parameters
        self._keep_every, self._patience, self._note, self._hear = keep_every, patience, note, hear
        training = job.training
        self._epoch = self._kept_epoch = 0 if training is None else training.first_epoch  # done; at the state kept
        self._kept: PSState | None = None  # None: as they began
        self._permits: dict[int, tuple[int | None, bool]] = {}  # how the epochs since then were asked for
        self._ending: tuple[int, bool, Any] | None = None  # (epochs done, with their state, answers to come)
        self._session = 0
        self._peaks: dict[int, int] = {}  # of graph servers
        self._exact = False
        self._began = False
        self._dropped = False

    def train_epoch(self, permit: int | None = None, *, exact: bool = False) -> EpochReport:
        """Train until the next epoch is finished everywhere, whatever happens meanwhile."""
        self._permits[self._epoch] = permit, exact
        start = time.perf_counter()
        report = self._in_spite_of_faults(self._next_epoch)
        return replace(report, seconds=time.perf_counter() - start)

    def outputs(self, layer: int = -1, weights: Mapping[str, Tensor] | None = None) -> Outputs:
        """A layer's output for every vertex by an exact forward pass."""
        answers = self._in_spite_of_faults(lambda: self._ask(self._graphs, "outputs", layer, weights))
        made = [rows for rows, _ in answers]
        self._note_peaks([peak for _, peak in answers])
        self._hear_all("pool_news")
        orders = [layout.order for layout in self._job.cut.layouts]
        return Outputs(self._job.graph.num_vertices, made[0].shape[1], lambda: zip(orders, made, strict=True))

    def state(self) -> PSState:
        """Weights, optimiser and learning-rate schedule as they are now; most often they are kept here."""
        with suppress(ServersLostError):  # then it is trained again
            self._hear_end()
        if self._kept is not None and self._kept_epoch == self._epoch:
            return self._kept
        return self._in_spite_of_faults(lambda: join_states(self._ask(self._parameters, "state")))

    def restore(self, state: PSState) -> None:
        """Go on from such a state."""
        self._kept, self._kept_epoch, self._ending = state, self._epoch, None
        self._began = False

    def settle(self) -> None:
        """Wait until whatever the pools were asked for has come."""
        self._hear_all("settle_pool")

    def figures(self) -> dict[str, Any]:
        """What the pools did, all of them together."""
        return joined_figures(self._in_spite_of_faults(lambda: self._ask(self._graphs, "pool_figures")))

    @property
    def peaks(self) -> list[int]:
        """The most memory that each graph server has needed so far, as of the last epoch or evaluation, in bytes."""
        return [self._peaks.get(server, 0) for server in range(len(self._graphs))] if self._peaks else []

    def ready(self) -> None:
        """Wait until all servers are there and have begun."""
        self._in_spite_of_faults(lambda: None)

    def drop_epoch(self) -> None:
        """Give up the epoch, or the evaluation, in hand, from any thread: it ends by :class:`EpochDroppedError`."""
        self._dropped = True
        self._graphs.ask("drop_epoch", self._session)

    def close(self) -> None:
        """End all servers."""
        self._graphs.close()
        self._parameters.close()

    def _in_spite_of_faults(self, work: Callable[[], T]) -> T:
        """Do some work with everybody there and up to date; after a fault, again from the last state kept."""
        faults, reached, lost_s = 0, self._epoch, 0.0
        while True:
            try:
                if faults:
                    self._graphs.revive()
                    self._parameters.revive()
                self._catch_up(reached)
                if faults:
                    self._note("recovered", epoch=reached, seconds=round(time.perf_counter() - lost_s, 3))
                    lost_s = 0.0
                return work()
            except NotRevivedError:
                raise
            except ServersLostError as fault:
                if self._dropped:  # servers that gave up hang up, and others hear of that first
                    raise EpochDroppedError("the epoch was given up.") from fault
                faults, lost_s = faults + 1, lost_s or time.perf_counter()
                with suppress(ServersLostError):
                    self._hear_end()  # it may have come before
                self._began = False
                self._note("fault", epoch=reached, error=str(fault))
                if faults > self._patience:
                    raise
                time.sleep(BACK_OFF_S * (faults - 1))  # what comes again at once may pass by itself

    def _catch_up(self, epoch: int) -> None:
        """Be where so many epochs are done: nothing to do unless there was a fault."""
        if not self._began:
            self._begin()
        while self._epoch < epoch:
            self._next_epoch()

    def _begin(self) -> None:
        """All servers begin a new session from the state kept.

        Graph servers leave the one before first: nothing of it is at work any more when weights are restored.
        """
        self._session += 1
        self._epoch, self._exact, self._ending = self._kept_epoch, False, None
        left = self._ask(self._graphs, "leave")
        if not all(left):
            late = [server for server, has_left in enumerate(left) if not has_left]
            self._note("straggler", session=self._session, servers=late)
        self._ask(self._parameters, "restore", self._kept, self._epoch)
        addresses = dict(enumerate(self._graphs.call("address")))
        ghosts = dict(enumerate(self._graphs.call("ghosts")))
        ports = self._parameters.call("address")
        keys = [self._ask(self._parameters, "key") for _ in range(len(self._graphs))]
        each = [(self._session, self._epoch, ghosts, list(zip(ports, its, strict=True))) for its in keys]
        self._graphs.call("begin", each=each)
        self._ask(self._graphs, "connect", addresses)
        self._began = True
        places = {"graph": self._graphs.call("whereabouts"), "parameter": self._parameters.call("whereabouts")}
        self._note("session", session=self._session, epoch=self._epoch, servers=places)

    def _ask(self, servers: Servers, method: str, *arguments: Any) -> list[Any]:
        """Call a method of all servers in the session: one that is in another refuses."""
        return servers.call(method, self._session, *arguments)

    def _hear_all(self, method: str) -> None:
        for news in self._in_spite_of_faults(lambda: self._ask(self._graphs, method)):
            self._hear(news)

    def _note_peaks(self, peaks: Sequence[int]) -> None:
        """A server that was started again has a new peak; what it needed before counts too."""
        for server, peak in enumerate(peaks):
            self._peaks[server] = max(peak, self._peaks.get(server, 0))

    def _note_refused(self, messages: int) -> None:
        if messages:
            self._note("refused", session=self._session, messages=messages)

    def _next_epoch(self) -> EpochReport:
        epoch = self._epoch
        permit, exact = self._permits[epoch]
        if exact and not self._exact:
            self._exact = True
            self._ask(self._parameters, "synchronise")
        reports: list[NodeReport] = self._ask(self._graphs, "train_epoch", permit, exact)
        self._hear_end()
        loss = total_loss({interval: part for report in reports for interval, part in report.losses.items()})
        for report in reports:
            self._hear(report.pool)
        self._note_peaks([report.server.peak_memory_bytes for report in reports])
        self._note_refused(sum(report.refused for report in reports))
        if not math.isfinite(loss):  # the run ends here: no state after this epoch is worth keeping
            return _joined(loss, reports)
        drained = permit is None or permit <= epoch
        keep = drained and (epoch + 1 - self._kept_epoch) >= self._keep_every
        asked = self._parameters.ask("end_epoch", self._session, epoch + 1, loss, keep)
        self._ending = epoch + 1, keep, asked
        self._epoch = epoch + 1
        return _joined(loss, reports)

    def _hear_end(self) -> None:
        """Take what parameter servers answered when the last epoch was ended; the next one does not wait for that."""
        if self._ending is not None:
            (epoch, keep, asked), self._ending = self._ending, None
            answers = self._parameters.answers(asked)
            self._note_refused(sum(refused for _, refused in answers))
            if keep:
                self._keep(join_states([state for state, _ in answers]), epoch)

    def _keep(self, state: PSState, epoch: int) -> None:
        self._kept, self._kept_epoch = state, epoch
        self._permits = {each: asked for each, asked in self._permits.items() if each >= epoch}


def _joined(loss: float, reports: Sequence[NodeReport]) -> EpochReport:
    """One report of those of all nodes. Spans of different machines are told by different clocks."""
    traffic: Counter[str] = Counter()
    ages: Counter[int] = Counter()
    for report in reports:
        traffic.update({**report.made.traffic, **report.traffic})
        ages.update(report.made.ages)
    return EpochReport(
        loss,
        0.0,
        [span for report in reports for span in report.made.spans],
        [delivery for report in reports for delivery in report.made.deliveries],
        dict(traffic),
        dict(sorted(ages.items())),
        sum(report.made.waits for report in reports),
        [report.server for report in reports],
    )
