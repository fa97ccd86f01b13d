"""The graph servers of one process: their passes for training and evaluation, and the engine that runs them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dorylus import process_memory
from dorylus.errors import DataError, DorylusError
from dorylus.graph import Graph, drop_pages
from dorylus.partition import Ids, LocalShard, VertexSource
from dorylus.pipeline import Kind, Reads, Scheduler, Step, Synchronise, Task, TaskTable, make_schedule, pipe
from dorylus.pools import TensorPool
from dorylus.runtime.engine import Done, Engine, EnginePass, Failed, Span
from dorylus.runtime.runtime import Block, Delivery, Job, Training
from dorylus.runtime.server_pass import FixedWeights, RemotePeers, ServerPass, Weights
from dorylus.saga import IGNORED, Targets, steps_of
from dorylus.servers import Arena, BoundedArena, GraphServer, MemoryStorage, PassSettings, Peers, StaticRows, Storage

TRAINING, EVALUATION = "training", "evaluation"
BLOCK = 1 << 20  # vertices whose labels are read together
Static = Mapping[int, Mapping[int, StaticRows]]  # by server: gathers that are made only once, by layer


@dataclass(frozen=True)
class ProcessEpoch:
    """One epoch of the servers of a process: see :class:`~dorylus.runtime.runtime.EpochReport`."""

    spans: list[Span]
    deliveries: list[Delivery]
    traffic: Mapping[str, int]  # between graph servers, bytes by kind
    ages: Mapping[int, int]
    waits: int

    def shifted(self, by_s: float) -> "ProcessEpoch":
        """The same epoch by a clock that is ``by_s`` seconds ahead."""
        spans = [each._replace(start_s=each.start_s + by_s, end_s=each.end_s + by_s) for each in self.spans]
        deliveries = [each._replace(start_s=each.start_s + by_s, end_s=each.end_s + by_s) for each in self.deliveries]
        return replace(self, spans=spans, deliveries=deliveries)


class ServerProcess:
    """Graph servers over some shards of a job.

    The static gathers are made first, or taken over from an earlier ServerProcess. ``remote`` returns the servers in
    other processes that take part in the pass of a name.
    """

    def __init__(
        self,
        job: Job,
        shards: Sequence[LocalShard],
        pool: TensorPool,
        trained: Weights,
        *,
        first_epoch: int = 0,
        remote: Callable[[str], RemotePeers] | None = None,
        static: Static | None = None,
        storage: Storage | None = None,
    ) -> None:
        self._job, self._shards, self._pool, self._remote = job, shards, pool, remote
        self._storage: Storage = _in_memory(job) if storage is None else storage
        self._fixed = FixedWeights()
        self._engine = Engine(job.threads, job.deadline_s)
        try:
            self._make_passes(static, trained, first_epoch)
        except BaseException:
            self._engine.close()
            raise
        self._counted: Counter[str] = Counter()
        if not job.evaluation.reads_features:
            for shard in shards:
                shard.drop_features()

    def _make_passes(self, static: Static | None, trained: Weights, first_epoch: int) -> None:
        self.evaluation = self._evaluation_pass()
        self.static = self._gather_static() if static is None else static
        for server, gathers in (static or {}).items():
            self.evaluation.servers[server].share_static(gathers)
        training = self._job.training
        self.training = None if training is None else self._training_pass(training, trained, first_epoch)

    def passes(self) -> dict[str, ServerPass]:
        """The passes by name."""
        return {EVALUATION: self.evaluation} | ({} if self.training is None else {TRAINING: self.training})

    def train_epoch(self, permit: int | None = None) -> tuple[int, ProcessEpoch]:
        """Train until the servers here have finished the next epoch: its number, and its report."""
        training = self.training
        assert training is not None
        epoch = training.epoch + 1
        with self._files_checked():
            spans = self._engine.run(training, epoch, permit)
            self._job.backend.synchronise()
        if self._job.bounded is not None and process_memory.private_bytes() > self._job.bounded.process:
            process_memory.give_back()
        waits, training.waits = training.waits, 0
        deliveries, training.deliveries = training.deliveries, []
        return epoch, ProcessEpoch(spans, deliveries, self._take_traffic(training), _take_ages(training), waits)

    def synchronise(self) -> None:
        """From the next epoch on, which no interval has started: no stale values, one weight update an epoch."""
        training = self.training
        assert training is not None
        epoch = training.epoch + 1
        for number, server in training.servers.items():
            self._engine.handle(training, number, Synchronise(epoch))
            server.synchronise()

    @property
    def is_synchronous(self) -> bool:
        """Whether all epochs from now on are exact."""
        return self.training is not None and all(each.is_synchronous for each in self.training.schedulers.values())

    def outputs(self, layer: int, weights: Mapping[str, Tensor]) -> Callable[[], Iterator[Block]]:
        """A layer's output for the vertices here, by an exact forward pass; to be read before the next pass."""
        if self._job.bounded is not None:
            process_memory.give_back()  # free memory that training has left does not fit matrices of all rows
        self._fixed.weights = weights
        with self._files_checked():
            self._engine.run(self.evaluation, self.evaluation.epoch + 1)
        self.evaluation.deliveries.clear()
        return partial(self._blocks, layer)

    def _blocks(self, layer: int) -> Iterator[Block]:
        for shard in self._shards:
            for begin, rows in self.evaluation.servers[shard.server].layer_output(layer):
                yield shard.layout.order[begin : begin + len(rows)], rows

    def fail(self, error: DorylusError) -> None:
        """End the passes with an error, because what they wait for will not arrive."""
        for each in self.passes().values():
            self._engine.fail(each, error)

    def close(self, timeout_s: float | None = None) -> bool:
        """Stop the threads; False if some still run after ``timeout_s``."""
        return self._engine.close(timeout_s)

    def release_memory(self) -> None:
        """Release all matrices but the static ones, after failed passes, of which a task may still run."""
        for each in self.passes().values():
            each.release_memory()
        self._storage.clear()

    @contextmanager
    def _files_checked(self) -> Iterator[None]:
        """Refuse results if the store's files have changed since the start: they may mix two graphs, or read zeros.

        Where a task failed on such numbers, the changed file is the error to report.
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

    def _gather_static(self) -> Static:
        """One server after the other: each needs the features of its ghosts only while it gathers them."""
        return {name: server.gather_static(self._each_interval) for name, server in self.evaluation.servers.items()}

    def _evaluation_pass(self) -> ServerPass:
        plan = self._job.evaluation
        steps = steps_of(plan, backward=False)
        settings = PassSettings(training=False, bf16=self._job.bf16, ghost_bf16=self._job.ghost_bf16)

        def make(shard: LocalShard, peers: Peers) -> GraphServer:
            return GraphServer(shard, plan, steps, self._job.backend, self._storage, peers, settings)

        return ServerPass(
            self._shards,
            self._engine,
            self._pool,
            self._fixed,
            pipe(steps.table),
            make,
            everything=True,
            remote=None if self._remote is None else self._remote(EVALUATION),
        )

    def _training_pass(self, training: Training, trained: Weights, first_epoch: int) -> ServerPass:
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

        return ServerPass(
            self._shards,
            self._engine,
            self._pool,
            trained,
            make_schedule(training.mode, training.staleness)(steps.table),
            make,
            everything=False,
            first_epoch=first_epoch,
            remote=None if self._remote is None else self._remote(TRAINING),
        )

    def _each_interval(self, num_intervals: int, work: Callable[[int], None]) -> None:
        """Call ``work`` for every interval of a server on the engine's threads."""
        once = Scheduler(
            pipe(TaskTable((Step(Kind.GATHER, 0),))), Reads.complete(num_intervals), server=0, bounds=(0, num_intervals)
        )

        def execute(server: int, task: Task, done: Done, failed: Failed) -> None:
            work(task.interval)
            done()

        self._engine.run(EnginePass({0: once}, execute), 0)

    def _take_traffic(self, training: ServerPass) -> dict[str, int]:
        """Bytes sent since the last call, by kind."""
        counted: Counter[str] = Counter()
        for server in training.servers.values():
            counted.update(server.traffic)
        fresh, self._counted = counted - self._counted, counted
        return dict(fresh)


def _in_memory(job: Job) -> Storage:
    bounded, backend = job.bounded, job.backend
    return MemoryStorage(backend, Arena(backend) if bounded is None else BoundedArena(backend, bounded.matrices))


def targets_of(graph: VertexSource, training: Training, vertices: Ids) -> Targets:
    """The labels that the loss compares the outputs of some vertices with; vertices outside train_mask do not count."""
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


def _take_ages(training: ServerPass) -> dict[int, int]:
    ages: Counter[int] = Counter()
    for server in training.servers.values():
        ages.update(server.take_ages())
    return dict(sorted(ages.items()))
