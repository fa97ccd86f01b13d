"""The servers of a run: made when they are first needed, and made anew, fewer, where some are lost for good."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dorylus.cluster import Cluster, ServersLostError
from dorylus.errors import ConfigError, TrainingError
from dorylus.graph import Graph
from dorylus.partition import METHODS
from dorylus.pools import Made
from dorylus.saga import Program
from dorylus.servers import PSState
from dorylus.training.assembly import assemble, threads_of
from dorylus.training.clusters import Ears, Running, make_cluster
from dorylus.training.config import RunConfig, recut
from dorylus.training.jobs import training_job
from dorylus.training.optim import OptimizerFactory, ScheduleFactory, make_lr_schedule, make_optimizer

T = TypeVar("T")


class Fleet:
    """Knows how a run is cut, and everything its servers are made of; ``config`` has every setting as it came out."""

    def __init__(
        self,
        graph: Graph,
        program: Program,
        config: RunConfig,
        optimizer: OptimizerFactory | None,
        lr_schedule: ScheduleFactory | None,
        pool: Made | None,
    ) -> None:
        self._graph, self._program, self._pool = graph, program, pool
        names = [name for name, _ in program.named_parameters()]
        make, schedule = (
            partial(make_optimizer, config, factory=optimizer, names=names),
            partial(make_lr_schedule, config, factory=lr_schedule),
        )
        schedule(make(list(program.named_parameters())))  # refused now or never
        self._makers = make, schedule
        self._ran: Running | None = None
        self._began_after = 0  # so many epochs
        self._start: PSState | None = None
        self._in_use = threading.Lock()
        self._cut(config)

    def _cut(self, config: RunConfig) -> None:
        self.assembly = assemble(self._graph, self._program, config)
        # Every setting as it came out: the bits of a run depend on its intervals, so a resumed run must cut the same.
        intervals = self.assembly.cut.layouts[0].num_intervals
        self.config = replace(config, intervals=intervals, threads=threads_of(config))

    @contextmanager
    def in_one_thread(self) -> Iterator[None]:
        """While it is open, another thread that wants to train with these servers is refused."""
        if not self._in_use.acquire(blocking=False):
            raise TrainingError(
                "the trainer is training already, and one thread at a time trains a run: wait until the other call of "
                "Trainer.run has returned, or make another Trainer, with a run_dir of its own."
            )
        try:
            yield
        finally:
            self._in_use.release()

    def go_on_from(self, state: PSState) -> None:
        """Have servers that are not made yet begin with such a state."""
        self._start = state

    def running(self, epoch: int, ears: Ears) -> Cluster:
        """The servers, made now if they are not there, after so many epochs."""
        if self._ran is None:
            job = training_job(self._graph, self._program, self.assembly, self.config, *self._makers, epoch)
            self._ran, self._began_after = make_cluster(job, self.config, self._pool, ears), epoch
            if self._start is not None:
                self._ran.cluster.restore(self._start)
            self._ran.ready()
        return self._ran.cluster

    @property
    def _can_shrink(self) -> bool:
        """Whether the run may, and can, go on with one server less."""
        return self.config.elastic and self.config.servers > 1 and self.config.partition in METHODS

    def _shrink(self, epoch: int) -> None:
        """Let go of the servers; there is one less when they are made anew, from the state after so many epochs."""
        if self._ran is not None:
            if epoch > self._began_after:
                self._start = self._ran.cluster.state()
            self.close()
        self._cut(recut(self.config, {"servers": self.config.servers - 1}))

    def elastically(self, work: Callable[[], T], epoch: Callable[[], int], note: Callable[..., None]) -> T:
        """Do some work, again with fewer servers where some are lost for good and the settings allow that."""
        fault: ServersLostError | None = None
        while True:
            try:
                return work()
            except ServersLostError as error:
                fault = error
            except ConfigError as error:
                if fault is None:  # not that so many do not fit either
                    raise
                note("cluster", what="no room", servers=self.config.servers, error=str(error))
            if not self._can_shrink:
                raise fault
            self._shrink(epoch())
            note("cluster", what="shrunk", epoch=epoch(), servers=self.config.servers)

    def settle(self) -> None:
        """Wait until whatever pools were asked for has come."""
        assert self._ran is not None
        self._ran.settle()

    def figures(self) -> Mapping[str, Any]:
        """What pools did until now."""
        assert self._ran is not None
        return self._ran.figures()

    def drop(self) -> None:
        """Have servers give up the epoch in hand; from any thread."""
        if self._ran is not None:
            self._ran.drop()

    def peaks(self) -> list[int]:
        """The most memory that each graph server in a process of its own has needed so far, evaluations included."""
        assert self._ran is not None
        return self._ran.peaks()

    def begun_invocations(self) -> int:
        """How many invocations the run's own pool has begun, where it is in this process; any thread may ask."""
        ran, ours = self._ran, self._pool is None and self.config.cluster == "local"
        return int(ran.figures().get("invocations", 0)) if ran is not None and ours else 0

    def close(self) -> None:
        """Stop all servers."""
        if self._ran is not None:
            self._ran.close()
            self._ran = None
