"""The runtime whose servers have processes of their own: the driver's side, independent of the engine that places them.

Every epoch is one call to each graph server. After a fault all servers begin a new session from the last state that was
kept, and the epochs since then are trained again: a synchronous run has the same weights to the last bit. Where servers
are lost for good and the settings allow it, the run continues with fewer.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from torch import Tensor

from dorylus.errors import ConfigError
from dorylus.runtime.graph_node import NodeReport, joined_figures
from dorylus.runtime.runtime import (
    EpochDroppedError,
    EpochReport,
    Job,
    Note,
    NotRevivedError,
    Outputs,
    PoolNews,
    ServersLostError,
    total_loss,
)
from dorylus.servers import PSState, join_states

BACK_OFF_S = 1.0

T = TypeVar("T")


def _ignore(*_: Any, **__: Any) -> None:
    """Does nothing."""


class Servers(Protocol):
    """The graph servers, or the parameter servers, of a run, wherever an engine has placed them."""

    def __len__(self) -> int: ...

    def call(self, method: str, *arguments: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Call a method of all of them at once, with these arguments or with those of ``each``, and return their
        answers. Raises :class:`ServersLostError` when one is lost or loses another."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of all of them without waiting; :meth:`answers` takes what this returns."""

    def answers(self, pending: Any) -> list[Any]:
        """Their answers, as :meth:`call` returns them."""

    def revive(self) -> None:
        """Wait until all of them are there again; :class:`NotRevivedError` when they are not in time."""

    def close(self) -> None:
        """Stop them."""


Place = Callable[[Job], tuple[Servers, Servers]]  # starts the graph servers and the parameter servers of a job


class RemoteRuntime:
    """Drives graph servers and parameter servers in processes of their own, and recovers them.

    ``keep_every``: after how many epochs the parameter servers' state is fetched, to continue from after a fault.
    ``patience``: how many faults in a row, with no epoch finished in between, are recovered from. ``fewer_servers``
    returns the job for one server less, or None where that is not allowed. ``note`` receives what happens to servers,
    ``pool_news`` what their pools did; ``at_close`` is called when all servers have stopped.
    """

    def __init__(
        self,
        job: Job,
        place: Place,
        *,
        keep_every: int = 1,
        patience: int = 5,
        fewer_servers: Callable[[], Job | None] = lambda: None,
        note: Note = _ignore,
        pool_news: Callable[[PoolNews], None] = _ignore,
        at_close: Callable[[], None] = _ignore,
    ) -> None:
        self._place, self._fewer_servers, self._at_close = place, fewer_servers, at_close
        self._keep_every, self._patience, self._note, self._pool_news = keep_every, patience, note, pool_news
        training = job.training
        self._epoch = self._kept_epoch = 0 if training is None else training.first_epoch  # done; at the state kept
        self._kept: PSState | None = None  # None: as they began
        # Permit and exact_from of the epochs since the state kept: lost ones are trained again as they were.
        self._requests: dict[int, tuple[int | None, int | None]] = {}
        self._ending: tuple[int, bool, Any] | None = None  # (epochs done, with their state, answers to come)
        self._session = 0
        self._began_at: int | None = None  # the epoch that the session began at; None: it must begin first
        self._dropped = False
        self._open = ExitStack()
        self._start(job)

    def _start(self, job: Job) -> None:
        self._graphs, self._parameters = self._place(job)
        self._open.callback(self._parameters.close)
        self._open.callback(self._graphs.close)
        self._job = job
        self._peaks: dict[int, int] = {}  # of graph servers

    def train_epoch(self, permit: int | None = None, exact_from: int | None = None) -> EpochReport:
        """Train until every server has finished the next epoch, recovering from faults."""
        self._requests[self._epoch] = permit, exact_from
        start = time.perf_counter()
        report = self._recovering(self._next_epoch)
        return replace(report, seconds=time.perf_counter() - start)

    def outputs(self, layer: int = -1, weights: Mapping[str, Tensor] | None = None) -> Outputs:
        """A layer's output for every vertex by an exact forward pass."""
        answers = self._recovering(lambda: self._ask(self._graphs, "outputs", layer, weights))
        rows = [rows for rows, _ in answers]
        self._note_peaks([peak for _, peak in answers])
        self._take_news("pool_news")
        orders = [layout.order for layout in self._job.cut.layouts]
        return Outputs(self._job.graph.num_vertices, rows[0].shape[1], lambda: zip(orders, rows, strict=True))

    def state(self) -> PSState:
        """The current weights, optimiser state and learning-rate schedule; most often they are kept here."""
        with suppress(ServersLostError):  # then the epoch is trained again
            self._take_end()
        if self._kept is not None and self._kept_epoch == self._epoch:
            return self._kept
        return self._recovering(lambda: join_states(self._ask(self._parameters, "state")))

    def restore(self, state: PSState) -> None:
        """Continue from a state."""
        self._kept, self._kept_epoch, self._ending = state, self._epoch, None
        self._began_at = None

    def drop_epoch(self) -> None:
        """Drop the epoch or evaluation in progress, from any thread: it ends with :class:`EpochDroppedError`."""
        self._dropped = True
        self._graphs.ask("drop_epoch", self._session)

    def settle(self) -> None:
        """Wait until the pools have answered every call."""
        self._take_news("settle_pool")

    def figures(self) -> dict[str, Any]:
        """The figures of all pools together."""
        return joined_figures(self._recovering(lambda: self._ask(self._graphs, "pool_figures")))

    def peaks(self) -> list[int]:
        """The peak memory of each graph server as of the last epoch or evaluation, in bytes."""
        return [self._peaks.get(server, 0) for server in range(len(self._graphs))] if self._peaks else []

    def ready(self) -> None:
        """Wait until all servers are there and have begun."""
        self._recovering(lambda: None)

    def close(self) -> None:
        """Stop all servers."""
        self._open.close()
        self._at_close()

    def _recovering(self, work: Callable[[], T]) -> T:
        """Return ``work()``, with all servers there and up to date; after a fault, again from the last state kept."""
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
            except NotRevivedError as fault:
                self._shrink(fault, reached)
                faults, lost_s = 0, 0.0
            except ServersLostError as fault:
                if self._dropped:  # a server that drops its epoch disconnects, and its peers may report that first
                    raise EpochDroppedError("the epoch was dropped.") from fault
                faults, lost_s = faults + 1, lost_s or time.perf_counter()
                with suppress(ServersLostError):
                    self._take_end()  # its end may have arrived before the fault
                self._began_at = None
                self._note("fault", epoch=reached, error=str(fault))
                if faults > self._patience:
                    self._shrink(fault, reached)
                    faults, lost_s = 0, 0.0
                else:
                    time.sleep(BACK_OFF_S * (faults - 1))  # repeated faults: wait, the cause may pass

    def _shrink(self, fault: ServersLostError, reached: int) -> None:
        """Start fewer servers in place of these, to continue from the state kept; raise the fault if none are left."""
        with suppress(ServersLostError):
            self._take_end()
        while (job := self._fewer_servers()) is not None:
            self._open.close()
            self._note("shrunk", epoch=reached, servers=job.cut.num_servers)
            self._began_at = None
            try:
                self._start(job)
                return
            except ConfigError as error:
                self._note("no room", servers=job.cut.num_servers, error=str(error))
        raise fault

    def _catch_up(self, epoch: int) -> None:
        """Train again what a fault has lost, until ``epoch`` epochs are done."""
        if self._began_at is None:
            self._begin()
        while self._epoch < epoch:
            self._next_epoch()

    def _begin(self) -> None:
        """Begin a new session of all servers from the state kept.

        Graph servers leave the session before first: no task of it runs any more when weights are restored.
        """
        self._session += 1
        self._epoch, self._ending = self._kept_epoch, None
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
        self._began_at = self._epoch
        places = {"graph": self._graphs.call("whereabouts"), "parameter": self._parameters.call("whereabouts")}
        self._note("session", session=self._session, epoch=self._epoch, servers=places)

    def _ask(self, servers: Servers, method: str, *arguments: Any) -> list[Any]:
        """Call a method of all servers in the session; a server in another session refuses."""
        return servers.call(method, self._session, *arguments)

    def _take_news(self, method: str) -> None:
        for news in self._recovering(lambda: self._ask(self._graphs, method)):
            self._pool_news(news)

    def _note_peaks(self, peaks: Sequence[int]) -> None:
        """Keep the highest: a server that was restarted reports a new, lower peak."""
        for server, peak in enumerate(peaks):
            self._peaks[server] = max(peak, self._peaks.get(server, 0))

    def _note_refused(self, messages: int) -> None:
        if messages:
            self._note("refused", session=self._session, messages=messages)

    def _next_epoch(self) -> EpochReport:
        epoch, (permit, exact_from) = self._epoch, self._requests[self._epoch]
        if exact_from is not None and epoch == max(exact_from, self._began_at or 0):  # a session's schedulers are new
            self._ask(self._parameters, "synchronise")
            self._ask(self._graphs, "synchronise")
        reports: list[NodeReport] = self._ask(self._graphs, "train_epoch", permit)
        self._take_end()
        loss = total_loss({interval: part for report in reports for interval, part in report.losses.items()})
        for report in reports:
            self._pool_news(report.pool)
        self._note_peaks([report.server.peak_memory_bytes for report in reports])
        self._note_refused(sum(report.refused for report in reports))
        if not math.isfinite(loss):  # the run ends here: the state after this epoch is not kept
            return _joined(loss, reports)
        drained = permit is None or permit <= epoch
        keep = drained and (epoch + 1 - self._kept_epoch) >= self._keep_every
        pending = self._parameters.ask("end_epoch", self._session, epoch + 1, loss, keep)
        self._ending = epoch + 1, keep, pending
        self._epoch = epoch + 1
        return _joined(loss, reports)

    def _take_end(self) -> None:
        """Take the parameter servers' answers to the end of the last epoch; the next epoch does not wait for them."""
        if self._ending is not None:
            (epoch, keep, pending), self._ending = self._ending, None
            answers = self._parameters.answers(pending)
            self._note_refused(sum(refused for _, refused in answers))
            if keep:
                self._keep(join_states([state for state, _ in answers]), epoch)

    def _keep(self, state: PSState, epoch: int) -> None:
        self._kept, self._kept_epoch = state, epoch
        self._requests = {each: request for each, request in self._requests.items() if each >= epoch}


def _joined(loss: float, reports: Sequence[NodeReport]) -> EpochReport:
    """The reports of all graph servers as one. Spans of different machines are by different clocks."""
    traffic: Counter[str] = Counter()
    ages: Counter[int] = Counter()
    for report in reports:
        traffic.update({**report.done.traffic, **report.traffic})
        ages.update(report.done.ages)
    return EpochReport(
        loss,
        0.0,
        [span for report in reports for span in report.done.spans],
        [delivery for report in reports for delivery in report.done.deliveries],
        dict(traffic),
        dict(sorted(ages.items())),
        sum(report.done.waits for report in reports),
        [report.server for report in reports],
    )
