"""A cluster whose servers live in other processes: the driver's side, whatever engine runs them.

Every epoch is one call to each graph server. After a fault everybody begins a new session from the last state that was
kept, and the epochs since are trained again: in a synchronous run that gives the same weights to the last bit.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from torch import Tensor

from dorylus.cluster.cluster import EpochReport
from dorylus.cluster.graph_node import NodeReport
from dorylus.cluster.job import Job
from dorylus.cluster.node_pool import PoolNews, joined_figures
from dorylus.cluster.outputs import Outputs
from dorylus.errors import TrainingError
from dorylus.servers import PSState
from dorylus.servers.ps_state import joined

BACK_OFF_S = 1.0

T = TypeVar("T")
Note = Callable[..., None]


def _unnoted(*told: Any, **details: Any) -> None:
    """Nobody wants to know."""


class ServersLostError(TrainingError):
    """Servers of a run died, or cannot be reached: the run can go on once they are back."""


class NotRevivedError(ServersLostError):
    """Servers that were lost are not there again within their time."""


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
        self._exact = False
        self._began = False

    def train_epoch(self, permit: int | None = None, *, exact: bool = False) -> EpochReport:
        """Train until the next epoch is finished everywhere, whatever happens meanwhile."""
        self._permits[self._epoch] = permit, exact
        start = time.perf_counter()
        report = self._in_spite_of_faults(self._next_epoch)
        return replace(report, seconds=time.perf_counter() - start)

    def outputs(self, layer: int = -1, weights: Mapping[str, Tensor] | None = None) -> Outputs:
        """A layer's output for every vertex by an exact forward pass."""
        made = self._in_spite_of_faults(lambda: self._graphs.call("outputs", layer, weights))
        self._hear_all("pool_news")
        orders = [layout.order for layout in self._job.cut.layouts]
        return Outputs(self._job.graph.num_vertices, made[0].shape[1], lambda: zip(orders, made, strict=True))

    def state(self) -> PSState:
        """Weights, optimiser and learning-rate schedule as they are now; most often they are kept here."""
        with suppress(ServersLostError):  # then it is trained again
            self._hear_end()
        if self._kept is not None and self._kept_epoch == self._epoch:
            return self._kept
        return self._in_spite_of_faults(lambda: joined(self._parameters.call("state")))

    def restore(self, state: PSState) -> None:
        """Go on from such a state."""
        self._kept, self._kept_epoch, self._ending = state, self._epoch, None
        self._began = False

    def settle(self) -> None:
        """Wait until whatever the pools were asked for has come."""
        self._hear_all("settle_pool")

    def figures(self) -> dict[str, Any]:
        """What the pools did, all of them together."""
        return joined_figures(self._in_spite_of_faults(lambda: self._graphs.call("pool_figures")))

    def ready(self) -> None:
        """Wait until all servers are there and have begun."""
        self._in_spite_of_faults(lambda: None)

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
        """Everybody begins a new session from the state kept."""
        self._session += 1
        self._epoch, self._exact, self._ending = self._kept_epoch, False, None
        self._parameters.call("restore", self._kept, self._epoch)
        addresses = dict(enumerate(self._graphs.call("address")))
        ghosts = dict(enumerate(self._graphs.call("ghosts")))
        ports = self._parameters.call("address")
        keys = [self._parameters.call("key") for _ in range(len(self._graphs))]
        each = [(self._session, self._epoch, ghosts, list(zip(ports, its, strict=True))) for its in keys]
        self._graphs.call("begin", each=each)
        self._graphs.call("connect", addresses)
        self._began = True
        places = {"graph": self._graphs.call("whereabouts"), "parameter": self._parameters.call("whereabouts")}
        self._note("session", session=self._session, epoch=self._epoch, servers=places)

    def _hear_all(self, method: str) -> None:
        for news in self._in_spite_of_faults(lambda: self._graphs.call(method)):
            self._hear(news)

    def _next_epoch(self) -> EpochReport:
        epoch = self._epoch
        permit, exact = self._permits[epoch]
        if exact and not self._exact:
            self._exact = True
            self._parameters.call("synchronise")
        reports: list[NodeReport] = self._graphs.call("train_epoch", permit, exact)
        self._hear_end()
        parts = {interval: part for report in reports for interval, part in report.losses.items()}
        loss = sum(parts[interval] for interval in sorted(parts))
        drained = permit is None or permit <= epoch
        keep = drained and (epoch + 1 - self._kept_epoch) >= self._keep_every
        self._ending = epoch + 1, keep, self._parameters.ask("end_epoch", epoch + 1, loss, keep)
        for report in reports:
            self._hear(report.pool)
        self._epoch = epoch + 1
        return _joined(loss, reports)

    def _hear_end(self) -> None:
        """Take what parameter servers answered when the last epoch was ended; the next one does not wait for that."""
        if self._ending is not None:
            (epoch, keep, asked), self._ending = self._ending, None
            states = self._parameters.answers(asked)
            if keep:
                self._keep(joined(states), epoch)

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
