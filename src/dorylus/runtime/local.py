"""The embedded cluster: graph servers, parameter servers and pool in this process, real concurrency."""

import math
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack

from torch import Tensor

from dorylus.graph import Degrees, Graph
from dorylus.paging import Moved, Pager
from dorylus.partition import LocalShard, PagedLocalShard, PartitionPlan, Shards, cut_shard, whole_shard
from dorylus.pools import TensorPool
from dorylus.progress import Tell, silent
from dorylus.runtime.cluster import EpochDroppedError, EpochReport, Outputs
from dorylus.runtime.job import Job
from dorylus.runtime.server_group import TrainedWeights
from dorylus.runtime.server_process import ServerProcess
from dorylus.servers import PagedStorage, ParameterServers, PSState


class LocalCluster:
    """Runs training and forward passes over all shards in this process: the :class:`Cluster` every machine has.

    ``tell`` hears how far the set-up of a run under a memory limit is.
    """

    def __init__(self, job: Job, pool: TensorPool, tell: Tell = silent) -> None:
        self._job, self._pool = job, pool
        self._parameters = _parameters(job)
        assert isinstance(job.graph, Graph)
        self._trained = TrainedWeights(self._parameters)
        first = 0 if job.training is None else job.training.first_epoch
        with ExitStack() as undo:  # what was started stops again if the rest cannot be
            undo.callback(pool.close)
            self._pager = None if job.limited is None else Pager(job.limited.scratch, job.deadline_s, tell)
            if self._pager is not None:
                undo.callback(self._pager.close)
            self._shards = _shards(job, job.graph, self._pager)
            storage = _paged_storage(job, self._pager)
            self._site = ServerProcess(job, self._shards, pool, self._trained, first_epoch=first, storage=storage)
            if job.bounded is not None:
                _let_go_of_files(job, self._shards)
            undo.pop_all()
        self._counted: Counter[str] = Counter()
        self._exact = False
        self._version = self._parameters.version  # of the weights after the last finished epoch

    def train_epoch(self, permit: int | None = None, *, exact: bool = False) -> EpochReport:
        """Train until the next epoch is finished everywhere."""
        start, before = time.perf_counter(), self._moved()
        self._version = self._parameters.version
        if exact and not self._exact:
            self._exact = True
            self._parameters.synchronise()
        epoch, made = self._site.train_epoch(permit, exact=exact)
        self._version = self._parameters.version
        loss = self._trained.take_loss(epoch)
        self._parameters.end_epoch(loss)
        if math.isfinite(loss):  # else the caller hears of the loss
            self._parameters.check_finite(f"after epoch {epoch + 1}")
        seconds, traffic = time.perf_counter() - start, {**made.traffic, **self._weight_traffic()}
        after = self._moved()
        moved = None if before is None or after is None else after.since(before)
        return EpochReport(loss, seconds, made.spans, made.deliveries, traffic, made.ages, made.waits, moved=moved)

    def outputs(self, layer: int = -1, weights: Mapping[str, Tensor] | None = None) -> Outputs:
        """A layer's output for every vertex by an exact forward pass, where the evaluation plan stores it."""
        blocks = self._site.outputs(layer, self._parameters.latest() if weights is None else weights)
        slot = self._job.evaluation.layer_outputs[layer]
        assert slot is not None
        return Outputs(self._job.graph.num_vertices, slot.columns, blocks)

    def state(self) -> PSState:
        """Weights, optimiser and learning-rate schedule as they are now."""
        return self._parameters.state()

    def restore(self, state: PSState) -> None:
        """Go on from such a state."""
        self._parameters.restore(state)

    def drop_epoch(self) -> None:
        """Give up the epoch, or the evaluation, in hand, from any thread: it ends by :class:`EpochDroppedError`.

        An exact epoch whose update is made is not given up, as it ends by itself at once.
        """
        training = self._job.training
        is_exact = training is not None and (training.mode != "async" or self._exact)
        if self._parameters.freeze(self._version) or not is_exact:
            self._site.fail(EpochDroppedError("the epoch was given up."))

    def close(self) -> None:
        """Stop threads and pool."""
        self._site.close()
        self._pool.close()
        if self._pager is not None:
            self._pager.close()

    def _moved(self) -> Moved | None:
        """Bytes between memory and files so far; None where nothing is paged."""
        return None if self._pager is None else self._pager.io_threads.moved

    def _weight_traffic(self) -> dict[str, int]:
        """Bytes of weights and their gradients since this was last asked, by kind."""
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
    return [arranged(graph, job.cut, job.saved, server, degrees) for server in range(job.cut.num_servers)]


def _let_go_of_files(job: Job, shards: list[LocalShard]) -> None:
    """Under a limit the page cache counts: what was read of the store and is not read again goes."""
    looped = [layer.self_loops for layer in job.evaluation.layers]
    for shard in shards:
        shard.let_go_of_files(keep_features=job.evaluation.reads_features, keep_edges=not all(looped))


def arranged(
    graph: Graph, cut: PartitionPlan, saved: Shards | None, server: int, degrees: Degrees | None = None
) -> LocalShard:
    """A server's shard: the one saved, or else without edges of its own, as the graph is in this process."""
    if cut.num_servers == 1:
        return LocalShard(whole_shard(graph), cut, graph)
    if saved is not None:
        return LocalShard(saved.shard(server), cut, graph)
    return LocalShard(cut_shard(graph, cut.parts, server, edges=False, degrees=degrees), cut, graph)


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
