"""The cluster of a run, from its settings.

The job a cluster is given, from the parts and settings of a run.

The servers of a run: made when they are first needed, and made anew, fewer, where some are lost for good.
"""

import hashlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dorylus.config import RunConfig, recut
from dorylus.errors import ConfigError, TrainingError, given
from dorylus.extras import check_installed
from dorylus.graph import Graph, full_address
from dorylus.partition import METHODS, Partitioning, save_shards_once, structure_of
from dorylus.pools import POOLS, Invoked, PoolHandle, run_pool
from dorylus.progress import Tell, silent
from dorylus.runtime import Cluster, Job, LocalCluster, PoolNews, ServersLostError, Training
from dorylus.saga import Program
from dorylus.servers import PSState
from dorylus.training.assembly import RunParts, assemble, threads_of
from dorylus.training.optim import OptimizerFactory, ScheduleFactory, make_lr_schedule, make_optimizer

Note = Callable[..., None]


@dataclass(frozen=True)
class RunListeners:
    """Who hears what: what becomes of servers, what pools note, every invocation, and how far set-up is.

    ``begins`` is called before every invocation of a pool in this process.
    """

    cluster: Note
    pool: Note
    invoked: Callable[[Invoked], None]
    set_up: Tell = silent
    begins: Callable[[], None] = lambda: None

    def news(self, news: PoolNews) -> None:
        """Hear what the pool of a server elsewhere has to tell."""
        for what, details in news.notes:
            self.pool(what, **details)
        for invocation in news.invoked:
            self.invoked(invocation)


@dataclass(frozen=True)
class ClusterHandle:
    """A cluster that runs, and what its pools have to tell at the end, once they have settled."""

    cluster: Cluster
    figures: Callable[[], Mapping[str, Any]]
    settle: Callable[[], None]
    ready: Callable[[], None] = lambda: None  # waits until it has begun
    drop: Callable[[], None] = lambda: None  # gives up the epoch in hand, from any thread
    scratch: Path | None = None  # a folder to be removed when it is closed
    peaks: Callable[[], list[int]] = list  # of the memory of graph servers in processes of their own, bytes

    def close(self) -> None:
        """Stop everything."""
        self.cluster.close()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def check_cluster(config: RunConfig, pool: object | None) -> RunConfig:
    """Refuse what no cluster can be made of, before anything is written; the settings, with threads that fit it."""
    if config.cluster == "local":
        if config.address is not None and not POOLS[config.pool].takes_address:
            raise ConfigError(
                f"{given('address', config.address)} with {given('cluster', 'local')}, which has none: use "
                f"{given('cluster', 'ray')}."
            )
        if config.elastic:
            raise ConfigError(
                f"{given('elastic', True)} with {given('cluster', 'local')}, whose servers cannot be lost: use "
                f"{given('cluster', 'ray')}."
            )
        return config
    if pool is not None:
        raise ConfigError(
            f"{given('cluster', 'ray')} with a pool object, which lives in this process: give the name of a pool."
        )
    check_installed('cluster="ray"', "ray")  # before what imports the packages that Ray's extra brings
    from dorylus.runtime import settled_threads

    return replace(config, threads=settled_threads(config.address, config.servers, config.threads))


def make_cluster(job: Job, config: RunConfig, given: PoolHandle | None, ears: RunListeners) -> ClusterHandle:
    """The cluster that these settings ask for, ready to train, with its own pool unless one is given."""
    if config.cluster == "local":
        made = given or _pool(config, config.servers, ears.pool, ears.invoked, ears.begins)
        local = LocalCluster(job, made.pool, ears.set_up)
        return ClusterHandle(local, made.figures, made.settle, drop=local.drop_epoch)
    from dorylus.runtime import NodeJob, RaySettings, ray_cluster

    assert isinstance(job.graph, Graph)
    scratch = None if job.graph.store or config.run_dir else Path(tempfile.mkdtemp(prefix="dorylus-"))
    try:
        store = job.graph.store or _stored(job.graph, scratch or Path(config.run_dir or "."))
        node_job = NodeJob(
            job=replace(job, graph=None, saved=None),  # type: ignore[arg-type]
            store=store,
            shards=_sharded(job, job.graph, store, config),
            make_pool=partial(_pool_of_node, config),
        )
        settings = RaySettings(address=config.address, cpus=job.threads, revive_s=config.revive_s)
        cluster = ray_cluster(job, node_job, settings, note=ears.cluster, hear=ears.news)
    except BaseException:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    return ClusterHandle(
        cluster, cluster.figures, cluster.settle, cluster.ready, cluster.drop_epoch, scratch, lambda: cluster.peaks
    )


def _stored(graph: Graph, folder: Path) -> str:
    """Where every node opens a graph that has no store: one written for the run."""
    path = str(folder.resolve() / "graph")
    graph.save(path, overwrite=True)
    return path


def _sharded(job: Job, graph: Graph, store: str, config: RunConfig) -> str:
    """Where every node opens its shard: the folder named, or one beside the store, written once for all runs.

    Its name is made from what was cut and how: runs of the same cut share it, and no run touches that of another cut.
    """
    if config.partition not in METHODS:
        return full_address(config.partition)
    name = hashlib.sha256(job.cut.parts.tobytes() + structure_of(graph).to_bytes(8, "little")).hexdigest()[:16]
    path = f"{store}.shards-{config.partition}-{job.cut.num_servers}-{name}"
    save_shards_once(path, graph, Partitioning(job.cut.parts, job.cut.num_servers, config.partition))
    return path


def _pool_of_node(config: RunConfig, host: str, note: Note, invoked: Callable[[Invoked], None]) -> PoolHandle:
    """The pool of one graph server: functions dial the node that it is on."""
    return _pool(replace(config, data_host=host), 1, note, invoked)


def _pool(
    config: RunConfig,
    servers: int,
    note: Note,
    invoked: Callable[[Invoked], None],
    begins: Callable[[], None] = lambda: None,
) -> PoolHandle:
    work = {"intervals": config.intervals, "threads": config.threads}
    return run_pool(config, note, invoked, begins, servers=servers, address=config.address, **work)


def training_job(
    graph: Graph,
    program: Program,
    parts: RunParts,
    config: RunConfig,
    make_optimizer: Callable[[Any], Optimizer],
    make_lr_schedule: Callable[[Optimizer], LRScheduler | None],
    first_epoch: int = 0,
) -> Job:
    """Train a program on a graph from an epoch on, by these settings."""
    training = Training(
        plan=parts.training,
        loss=parts.loss,
        loss_total=parts.loss_total,
        make_optimizer=make_optimizer,
        make_lr_schedule=make_lr_schedule,
        parameter_servers=config.parameter_servers,
        mode=config.mode,
        staleness=config.staleness,
        update=config.weight_update,
        seed=config.seed,
        keep_graph=(parts.limits is None or parts.limits.limited is None)
        and not config.rematerialize,  # pools that rematerialise keep nothing
        first_epoch=first_epoch,
    )
    return Job(
        graph=graph,
        cut=parts.cut,
        saved=parts.saved,
        program=program,
        evaluation=parts.evaluation,
        training=training,
        threads=threads_of(config),
        deadline_s=config.deadline_s,
        bf16=config.precision == "bf16",
        ghost_bf16=config.ghost_precision == "bf16",
        limited=None if parts.limits is None else parts.limits.limited,
        bounded=None if parts.limits is None else parts.limits.bounded,
    )


T = TypeVar("T")


class ElasticCluster:
    """Knows how a run is cut, and everything its servers are made of; ``config`` has every setting as it came out."""

    def __init__(
        self,
        graph: Graph,
        program: Program,
        config: RunConfig,
        optimizer: OptimizerFactory | None,
        lr_schedule: ScheduleFactory | None,
        pool: PoolHandle | None,
    ) -> None:
        self._graph, self._program, self._pool = graph, program, pool
        names = [name for name, _ in program.named_parameters()]
        make, schedule = (
            partial(make_optimizer, config, factory=optimizer, names=names),
            partial(make_lr_schedule, config, factory=lr_schedule),
        )
        schedule(make(list(program.named_parameters())))  # refused now or never
        self._makers = make, schedule
        self._ran: ClusterHandle | None = None
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

    def running(self, epoch: int, ears: RunListeners) -> Cluster:
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
