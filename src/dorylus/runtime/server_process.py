"""A site: the graph servers that live in one process, with their passes for training and evaluation."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dorylus import process_memory
from dorylus.errors import DataError, DorylusError
from dorylus.graph import Graph, drop_pages
from dorylus.partition import Ids, LocalShard, Source
from dorylus.pipeline import Kind, Reads, Scheduler, Step, Synchronise, Task, TaskTable, make_schedule, pipe
from dorylus.pools import TensorPool
from dorylus.runtime.cluster import Block, Delivery
from dorylus.runtime.engine import Engine, EnginePass, ServerRuntime, Span
from dorylus.runtime.job import Job, Training
from dorylus.runtime.server_group import FixedWeights, RemotePeers, ServerGroup, Weights
from dorylus.saga import IGNORED, Targets, steps_of
from dorylus.servers import (
    Arena,
    BoundedArena,
    GraphServer,
    MemoryStorage,
    PassSettings,
    Peers,
    StaticRows,
    Storage,
)

BLOCK = 1 << 20  # vertices whose labels are looked up together
Static = Mapping[int, Mapping[int, StaticRows]]  # by server: gathers that need making only once, by layer


@dataclass(frozen=True)
class EpochOfSite:
    """What one epoch of training did at a site: see :class:`~dorylus.runtime.cluster.EpochReport`."""

    spans: list[Span]
    deliveries: list[Delivery]
    traffic: Mapping[str, int]  # between graph servers, bytes by kind
    ages: Mapping[int, int]
    waits: int

    def shifted(self, by_s: float) -> "EpochOfSite":
        """The same by a clock that is so much ahead."""
        spans = [each._replace(start_s=each.start_s + by_s, end_s=each.end_s + by_s) for each in self.spans]
        on_the_way = [each._replace(start_s=each.start_s + by_s, end_s=each.end_s + by_s) for each in self.deliveries]
        return replace(self, spans=spans, deliveries=on_the_way)


class Neighbours(Protocol):
    """The other sites, as each pass sees them."""

    def of(self, name: str) -> RemotePeers:
        """The servers elsewhere of the pass called ``"training"`` or ``"evaluation"``."""


class ServerProcess:
    """Graph servers over some shards of a job. What is static is gathered first, or taken over from an earlier site."""

    def __init__(
        self,
        job: Job,
        shards: Sequence[LocalShard],
        pool: TensorPool,
        trained: Weights,
        *,
        first_epoch: int = 0,
        neighbours: Neighbours | None = None,
        static: Static | None = None,
        storage: Storage | None = None,
    ) -> None:
        self._job, self._shards, self._pool, self._neighbours = job, shards, pool, neighbours
        self._storage: Storage = _in_memory(job) if storage is None else storage
        self._fixed = FixedWeights()
        self._engine = Engine(job.threads, job.deadline_s)
        try:
            self._make_crews(static, trained, first_epoch)
        except BaseException:
            self._engine.close()
            raise
        self._counted: Counter[str] = Counter()
        self._exact = False
        if not job.evaluation.reads_features:
            for shard in shards:
                shard.forget_features()

    def _make_crews(self, static: Static | None, trained: Weights, first_epoch: int) -> None:
        self.evaluation = self._evaluation_crew()
        self.static = self._gather_static() if static is None else static
        for server, made in (static or {}).items():
            self.evaluation.servers[server].share_static(made)
        asked = self._job.training
        self.training = None if asked is None else self._training_crew(asked, trained, first_epoch)

    def train_epoch(self, permit: int | None = None, *, exact: bool = False) -> tuple[int, EpochOfSite]:
        """Train until the servers here have finished the next epoch: which that was, and what they did meanwhile."""
        crew = self.training
        assert crew is not None
        epoch = crew.work.epoch + 1
        if exact and not self._exact:
            self._synchronise(crew, epoch)
        with self._files_checked():
            spans = self._engine.run(crew.work, epoch, permit)
            self._job.backend.synchronise()
        if self._job.bounded is not None and process_memory.private_bytes() > self._job.bounded.process:
            process_memory.give_back()
        waits, crew.work.waits = crew.work.waits, 0
        deliveries, crew.deliveries = crew.deliveries, []
        return epoch, EpochOfSite(spans, deliveries, self._take_traffic(crew), _take_ages(crew), waits)

    def outputs(self, layer: int, weights: Mapping[str, Tensor]) -> Callable[[], Iterator[Block]]:
        """A layer's output for the vertices here, by an exact forward pass; to be looked at before the next pass."""
        crew = self.evaluation
        if self._job.bounded is not None:
            process_memory.give_back()  # what training has left is of no use for matrices of all rows
        self._fixed.weights = weights
        with self._files_checked():
            self._engine.run(crew.work, crew.work.epoch + 1)
        crew.deliveries.clear()
        return partial(self._blocks, layer)

    def _blocks(self, layer: int) -> Iterator[Block]:
        for shard in self._shards:
            for begin, rows in self.evaluation.servers[shard.server].layer_output(layer):
                yield shard.layout.order[begin : begin + len(rows)], rows

    def fail(self, error: DorylusError) -> None:
        """Nothing more will come from elsewhere: whoever waits for it is told."""
        for crew in (self.evaluation, self.training):
            if crew is not None:
                self._engine.fail(crew.work, error)

    def close(self, timeout_s: float | None = None) -> bool:
        """Stop the threads; False if some are still at work after so long."""
        return self._engine.close(timeout_s)

    def forget(self) -> None:
        """Let go of all matrices but the static ones. The site has failed; a task of it may still be at work."""
        for crew in (self.evaluation, self.training):
            if crew is not None:
                crew.forget()
        self._storage.clear()

    @contextmanager
    def _files_checked(self) -> Iterator[None]:
        """Refuse what was computed from files that have changed: it is of two graphs, or of zeros.

        Where a task failed on such numbers, that is the error to report.
        """
        try:
            yield
        except DataError:  # of the file itself
            raise
        except Exception:
            self._check_files()
            raise
        self._check_files()

    def _check_files(self) -> None:
        graph, saved = self._job.graph, self._job.saved
        if isinstance(graph, Graph):
            graph.check_files()
        if saved is not None and saved.files is not None:
            saved.files.check()

    def _synchronise(self, crew: ServerGroup, epoch: int) -> None:
        """From this epoch on, which nobody has started: no stale values, one weight update an epoch."""
        self._exact = True
        for name, server in crew.servers.items():
            self._engine.tell(crew.work, name, Synchronise(epoch))
            server.synchronise()

    def _gather_static(self) -> Static:
        """One server after the other: each needs the features of its ghosts only for as long as it gathers them."""
        return {name: server.gather_static(self._each_interval) for name, server in self.evaluation.servers.items()}

    def _evaluation_crew(self) -> ServerGroup:
        plan = self._job.evaluation
        steps = steps_of(plan, backward=False)
        settings = PassSettings(training=False, bf16=self._job.bf16, ghost_bf16=self._job.ghost_bf16)

        def make(shard: LocalShard, peers: Peers) -> GraphServer:
            return GraphServer(shard, plan, steps, self._job.backend, self._storage, peers, settings)

        elsewhere = None if self._neighbours is None else self._neighbours.of("evaluation")
        shards, engine, pool = self._shards, self._engine, self._pool
        return ServerGroup(
            shards, engine, pool, self._fixed, pipe(steps.table), make, everything=True, elsewhere=elsewhere
        )

    def _training_crew(self, training: Training, trained: Weights, first_epoch: int) -> ServerGroup:
        steps = steps_of(training.plan, backward=True)
        settings = PassSettings(
            training=True,
            seed=training.seed,
            bf16=self._job.bf16,
            ghost_bf16=self._job.ghost_bf16,
            keep_graph=training.keep_graph,
            asynchronous=training.mode == "async",
        )

        def make(shard: LocalShard, peers: Peers) -> GraphServer:
            targets = targets_of(self._job.graph, training, shard.layout.order)
            backend, storage = self._job.backend, self._storage
            server = GraphServer(shard, training.plan, steps, backend, storage, peers, settings, targets)
            server.share_static(self.static[shard.server])
            return server

        return ServerGroup(
            self._shards,
            self._engine,
            self._pool,
            trained,
            make_schedule(training.mode, training.staleness)(steps.table),
            make,
            everything=False,
            first_epoch=first_epoch,
            elsewhere=None if self._neighbours is None else self._neighbours.of("training"),
        )

    def _each_interval(self, num_intervals: int, work: Callable[[int], None]) -> None:
        """Do something for every interval of a server on the engine's threads."""
        once = Scheduler(
            pipe(TaskTable((Step(Kind.GATHER, 0),))), Reads.complete(num_intervals), server=0, bounds=(0, num_intervals)
        )

        def execute(task: Task, done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
            work(task.interval)
            done()

        self._engine.run(EnginePass({0: ServerRuntime(once, execute)}), 0)

    def _take_traffic(self, crew: ServerGroup) -> dict[str, int]:
        """Bytes sent since this was last asked, by kind."""
        counted: Counter[str] = Counter()
        for server in crew.servers.values():
            counted.update(server.traffic)
        fresh, self._counted = counted - self._counted, counted
        return dict(fresh)


def _in_memory(job: Job) -> Storage:
    bounded, backend = job.bounded, job.backend
    return MemoryStorage(backend, Arena(backend) if bounded is None else BoundedArena(backend, bounded.matrices))


def targets_of(graph: Source, training: Training, vertices: Ids) -> Targets:
    """What the loss compares the outputs of some vertices with; those that are not trained on do not count."""
    assert graph.labels is not None
    classes = graph.labels[vertices[:0]].shape[1:]
    labels = np.empty((vertices.size, *classes), np.float32 if training.loss == "bce" else np.int32)
    for begin in range(0, vertices.size, BLOCK):
        some = vertices[begin : begin + BLOCK]
        labels[begin : begin + BLOCK] = graph.labels[some]
        labels[begin : begin + BLOCK][~graph.train_mask[some]] = IGNORED
    for read in (graph.labels, graph.train_mask):
        if isinstance(read, np.ndarray):
            drop_pages(read)
    return Targets(training.loss, torch.from_numpy(labels), training.loss_total)


def _take_ages(crew: ServerGroup) -> dict[int, int]:
    ages: Counter[int] = Counter()
    for server in crew.servers.values():
        ages.update(server.take_ages())
    return dict(sorted(ages.items()))
