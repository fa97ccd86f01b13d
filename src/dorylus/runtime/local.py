"""The runtime that every machine has: graph servers, parameter servers and pool in this process."""

import math
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from dorylus.graph import Degrees, Graph
from dorylus.paging import Moved, Pager
from dorylus.partition import LocalShard, PagedLocalShard, PartitionPlan, Shards, make_shard, whole_shard
from dorylus.pools import PoolHandle, TensorPool
from dorylus.progress import ReportStage, silent
from dorylus.runtime.runtime import EpochDroppedError, EpochReport, Job, Outputs
from dorylus.runtime.server_pass import TrainedWeights
from dorylus.runtime.server_process import ServerProcess
from dorylus.servers import PagedStorage, ParameterServers, PSState


class LocalRuntime:
    """Runs training and forward passes over all shards in this process.

    ``report_progress`` is called during the set-up of a run under a memory limit, which takes minutes on a large graph.
    """

    def __init__(self, job: Job, pool: TensorPool | PoolHandle, report_progress: ReportStage = silent) -> None:
        self._job, self._pool = job, pool if isinstance(pool, PoolHandle) else PoolHandle(pool)
        self._parameters = _parameters(job)
        assert isinstance(job.graph, Graph)
        self._trained = TrainedWeights(self._parameters)
        first = 0 if job.training is None else job.training.first_epoch
        with ExitStack() as undo:  # what has started is stopped if a later part fails
            undo.callback(self._pool.pool.close)
            self._pager = None if job.limited is None else Pager(job.limited.scratch, job.deadline_s, report_progress)
            if self._pager is not None:
                undo.callback(self._pager.close)
            shards = _shards(job, job.graph, self._pager)
            storage = _paged_storage(job, self._pager)
            self._process = ServerProcess(
                job, shards, self._pool.pool, self._trained, first_epoch=first, storage=storage
            )
            if job.bounded is not None:
                _release_files(job, shards)
            undo.pop_all()
        self._counted: Counter[str] = Counter()
        self._version = self._parameters.version  # of the weights after the last finished epoch

    def train_epoch(self, permit: int | None = None, exact_from: int | None = None) -> EpochReport:
        """Train until every server has finished the next epoch."""
        if exact_from is not None and not self._process.is_synchronous:
            self._parameters.synchronise()
            self._process.synchronise()
        start, before = time.perf_counter(), self._moved()
        self._version = self._parameters.version
        epoch, done = self._process.train_epoch(permit)
        self._version = self._parameters.version
        loss = self._trained.take_loss(epoch)
        self._parameters.end_epoch(loss)
        if math.isfinite(loss):  # the trainer reports a loss that is not finite
            self._parameters.check_finite(f"after epoch {epoch + 1}")
        seconds, traffic = time.perf_counter() - start, {**done.traffic, **self._weight_traffic()}
        after = self._moved()
        moved = None if before is None or after is None else after.since(before)
        return EpochReport(loss, seconds, done.spans, done.deliveries, traffic, done.ages, done.waits, moved=moved)

    def outputs(self, layer: int = -1, weights: Mapping[str, Tensor] | None = None) -> Outputs:
        """A layer's output for every vertex by an exact forward pass, where the evaluation plan stores it."""
        blocks = self._process.outputs(layer, self._parameters.latest() if weights is None else weights)
        slot = self._job.evaluation.layer_outputs[layer]
        assert slot is not None
        return Outputs(self._job.graph.num_vertices, slot.columns, blocks)

    def state(self) -> PSState:
        """The current weights, optimiser state and learning-rate schedule."""
        return self._parameters.state()

    def restore(self, state: PSState) -> None:
        """Continue from a state."""
        self._parameters.restore(state)

    def drop_epoch(self) -> None:
        """Drop the epoch or evaluation in progress, from any thread: it ends with :class:`EpochDroppedError`.

        A synchronous epoch whose weight update has begun is not dropped.
        """
        if self._parameters.freeze(self._version) or not self._process.is_synchronous:
            self._process.fail(EpochDroppedError("the epoch was dropped."))

    def ready(self) -> None:
        """Do nothing: servers in this process are ready once they are made."""

    def settle(self) -> None:
        """Wait until the pool has answered every call."""
        self._pool.settle()

    def figures(self) -> Mapping[str, Any]:
        """The figures of the pool so far."""
        return self._pool.figures()

    def peaks(self) -> list[int]:
        """Empty: no graph server has a process of its own."""
        return []

    def close(self) -> None:
        """Stop threads and pool."""
        self._process.close()
        self._pool.pool.close()
        if self._pager is not None:
            self._pager.close()

    def _moved(self) -> Moved | None:
        """Bytes between memory and files so far; None where nothing is paged."""
        return None if self._pager is None else self._pager.io_threads.moved

    def _weight_traffic(self) -> dict[str, int]:
        """Bytes of weights and their gradients since the last call, by kind."""
        counted = Counter(self._trained.traffic)
        counted["weight_exchange"] += self._parameters.traffic
        fresh, self._counted = counted - self._counted, counted
        return dict(fresh)


def _paged_storage(job: Job, pager: Pager | None) -> PagedStorage | None:
    if pager is None or job.limited is None:
        return None
    return PagedStorage(job.backend, pager, job.limited.policy, job.limited.static_blocks)


def _shards(job: Job, graph: Graph, pager: Pager | None) -> list[LocalShard]:
    if pager is not None:
        return [PagedLocalShard(graph, job.cut, pager)]
    degrees = Degrees.of(graph) if job.saved is None else None
    return [local_shard(graph, job.cut, job.saved, server, degrees) for server in range(job.cut.num_servers)]


def _release_files(job: Job, shards: list[LocalShard]) -> None:
    """Release pages of the store that are not read again: under a limit the page cache counts."""
    looped = [layer.self_loops for layer in job.evaluation.layers]
    for shard in shards:
        shard.release_files(keep_features=job.evaluation.reads_features, keep_edges=not all(looped))


def local_shard(
    graph: Graph, cut: PartitionPlan, saved: Shards | None, server: int, degrees: Degrees | None = None
) -> LocalShard:
    """A server's shard: the saved one, or one without edges, which are read from the graph in this process."""
    if cut.num_servers == 1:
        return LocalShard(whole_shard(graph), cut, graph)
    if saved is not None:
        return LocalShard(saved.shard(server), cut, graph)
    return LocalShard(make_shard(graph, cut.parts, server, edges=False, degrees=degrees), cut, graph)


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
