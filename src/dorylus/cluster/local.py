"""The embedded cluster: graph servers, parameter servers and pool in this process, real concurrency."""

import time
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dorylus.cluster.cluster import EpochReport
from dorylus.cluster.crew import Crew, FixedWeights, TrainedWeights
from dorylus.cluster.engine import Engine, Pass, Station
from dorylus.cluster.job import Job, Training
from dorylus.graph import Graph
from dorylus.graph.degrees import Degrees
from dorylus.partition import Arrangement, Cut, Shards, cut_shard, whole_shard
from dorylus.pipeline import Kind, Reads, Scheduler, Step, Synchronise, Task, TaskTable, make_schedule, pipe
from dorylus.pools import TensorPool
from dorylus.saga.table import steps_of
from dorylus.servers import Arena, GraphServer, ParameterServers, PassSettings, Peers, PSState

Matrix = NDArray[np.float32]


class LocalCluster:
    """Runs training and forward passes over all shards in this process: the :class:`Cluster` every machine has."""

    def __init__(self, job: Job, pool: TensorPool) -> None:
        self._job, self._pool = job, pool
        self._arena = Arena()
        self._parameters = _parameters(job)
        self._shards = _shards(job.graph, job.cut, job.saved)
        self._fixed, self._trained = FixedWeights(), TrainedWeights(self._parameters)
        self._engine = Engine(job.threads, job.deadline_s)
        self._evaluation = self._evaluation_crew()
        # One server after the other: each needs the features of its ghosts only for as long as it gathers them.
        static = [server.gather_static(self._each_interval) for server in self._evaluation.servers]
        self._training = None if job.training is None else self._training_crew(job.training, static)
        self._counted: Counter[str] = Counter()
        self._exact = False
        if not job.evaluation.reads_features:
            for shard in self._shards:
                shard.forget_features()

    def train_epoch(self, permit: int | None = None, *, exact: bool = False) -> EpochReport:
        """Train until the next epoch is finished everywhere."""
        crew = self._training
        assert crew is not None
        start, epoch = time.perf_counter(), crew.work.epoch + 1
        if exact and not self._exact:
            self._synchronise(crew, epoch)
        spans = self._engine.run(crew.work, epoch, permit)
        loss = self._trained.take_loss(epoch)
        self._parameters.end_epoch(loss)
        seconds = time.perf_counter() - start
        waits, crew.work.waits = crew.work.waits, 0
        deliveries, crew.deliveries = crew.deliveries, []
        return EpochReport(loss, seconds, spans, deliveries, self._take_traffic(crew), _take_ages(crew), waits)

    def outputs(self, layer: int = -1, weights: Mapping[str, Tensor] | None = None) -> Matrix:
        """A layer's output for every vertex by an exact forward pass, where the evaluation plan stores it."""
        crew = self._evaluation
        self._fixed.weights = self._parameters.latest() if weights is None else weights
        self._engine.run(crew.work, crew.work.epoch + 1)
        crew.deliveries.clear()
        made = [server.layer_output(layer) for server in crew.servers]
        out = np.empty((self._job.graph.num_vertices, made[0].shape[1]), np.float32)
        for shard, rows in zip(self._shards, made, strict=True):
            out[shard.layout.order] = rows[: shard.num_vertices]
        return out

    def state(self) -> PSState:
        """Weights, optimiser and learning-rate schedule as they are now."""
        return self._parameters.state()

    def restore(self, state: PSState) -> None:
        """Go on from such a state."""
        self._parameters.restore(state)

    def close(self) -> None:
        """Stop threads and pool."""
        self._engine.close()
        self._pool.close()

    def _synchronise(self, crew: Crew, epoch: int) -> None:
        """From this epoch on, which nobody has started: no stale values, one weight update an epoch."""
        self._exact = True
        for shard in self._shards:
            self._engine.tell(crew.work, shard.server, Synchronise(epoch))
        for server in crew.servers:
            server.synchronise()
        self._parameters.synchronise()

    def _evaluation_crew(self) -> Crew:
        plan = self._job.evaluation
        steps = steps_of(plan, backward=False)
        settings = PassSettings(training=False, bf16=self._job.bf16, ghost_bf16=self._job.ghost_bf16)

        def make(shard: Arrangement, peers: Peers) -> GraphServer:
            return GraphServer(shard, plan, steps, self._arena, peers, settings)

        schedule = pipe(steps.table)
        return Crew(self._shards, self._engine, self._pool, self._fixed, schedule, make, everything=True)

    def _training_crew(self, training: Training, static: list[dict[int, Matrix]]) -> Crew:
        steps = steps_of(training.plan, backward=True)
        settings = PassSettings(
            training=True,
            seed=training.seed,
            bf16=self._job.bf16,
            ghost_bf16=self._job.ghost_bf16,
            keep_graph=training.keep_graph,
            asynchronous=training.mode == "async",
        )

        def make(shard: Arrangement, peers: Peers) -> GraphServer:
            targets = training.targets.of(shard.layout.order)
            server = GraphServer(shard, training.plan, steps, self._arena, peers, settings, targets)
            server.share_static(static[shard.server])
            return server

        schedule, first = make_schedule(training.mode, training.staleness)(steps.table), training.first_epoch
        engine, pool, weights = self._engine, self._pool, self._trained
        return Crew(self._shards, engine, pool, weights, schedule, make, everything=False, first_epoch=first)

    def _each_interval(self, num_intervals: int, work: Callable[[int], None]) -> None:
        """Do something for every interval of a server on the engine's threads."""
        once = Scheduler(
            pipe(TaskTable((Step(Kind.GATHER, 0),))), Reads.complete(num_intervals), server=0, bounds=(0, num_intervals)
        )

        def execute(task: Task, done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
            work(task.interval)
            done()

        self._engine.run(Pass([Station(once, execute)]), 0)

    def _take_traffic(self, crew: Crew) -> dict[str, int]:
        """Bytes sent since this was last asked, by kind."""
        counted = Counter(self._trained.traffic)
        for server in crew.servers:
            counted.update(server.traffic)
        counted["weight_exchange"] += self._parameters.traffic
        fresh, self._counted = counted - self._counted, counted
        return dict(fresh)


def _shards(graph: Graph, cut: Cut, saved: Shards | None) -> list[Arrangement]:
    """Every server's shard: those saved, or else without edges of their own, since the graph is in this process."""
    if cut.num_servers == 1:
        return [Arrangement(whole_shard(graph), cut, graph)]
    if saved is not None:
        return [Arrangement(saved.shard(server), cut, graph) for server in range(cut.num_servers)]
    degrees = Degrees.of(graph)
    servers = range(cut.num_servers)
    shards = (cut_shard(graph, cut.parts, server, edges=False, degrees=degrees) for server in servers)
    return [Arrangement(shard, cut, graph) for shard in shards]


def _parameters(job: Job) -> ParameterServers:
    training = job.training
    if training is None:
        return ParameterServers(job.program)
    return ParameterServers(
        job.program,
        training.parameter_servers,
        make_optimizer=training.make_optimizer,
        make_schedule=training.make_lr_schedule,
        update=training.update,
        num_intervals=job.cut.num_intervals,
    )


def _take_ages(crew: Crew) -> dict[int, int]:
    ages: Counter[int] = Counter()
    for server in crew.servers:
        ages.update(server.take_ages())
    return dict(sorted(ages.items()))
