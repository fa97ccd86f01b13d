"""The embedded cluster: graph server, parameter server and pool in this process, real concurrency."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dorylus.cluster.engine import Engine, Span
from dorylus.errors import DorylusError, TrainingError
from dorylus.partition import Shard
from dorylus.pipeline import SCHEDULES, Kind, Reads, Scheduler, Step, Task, TaskTable
from dorylus.pools import TensorPool
from dorylus.saga.dense import Call, Reply, Targets
from dorylus.saga.lower import Plan
from dorylus.saga.table import Steps, steps_of
from dorylus.servers import Arena, GraphServer, ParameterServer

DENSE = frozenset(
    {Kind.APPLY_VERTEX, Kind.APPLY_EDGE, Kind.LOSS, Kind.GRAD_APPLY_VERTEX, Kind.GRAD_APPLY_EDGE}
)  # what runs on the pool


@dataclass(frozen=True)
class EpochReport:
    """What one epoch of training did."""

    loss: float
    seconds: float
    spans: list[Span]

    def seconds_by_kind(self) -> dict[str, float]:
        """Thread-seconds spent on each kind of task."""
        spent: dict[str, float] = defaultdict(float)
        for span in self.spans:
            spent[str(span.task.kind)] += span.end_s - span.start_s
        return dict(spent)

    def rows(self) -> list[list[object]]:
        """The spans as the run log has them: kind, stage, interval, thread, start and end in seconds of the epoch."""
        start = min((span.start_s for span in self.spans), default=0.0)
        return [
            [str(s.task.kind), s.task.step, s.task.interval, s.thread, s.start_s - start, s.end_s - start]
            for s in self.spans
        ]


class Pass:
    """One plan over one shard: a graph server, its task table, and the scheduler that runs it."""

    def __init__(self, server: GraphServer, steps: Steps, reads: Reads, mode: str, first_epoch: int) -> None:
        self.server = server
        self.scheduler = Scheduler(SCHEDULES[mode](steps.table), reads, first_epoch=first_epoch)
        self.epoch = first_epoch


class LocalCluster:
    """Runs training and forward passes over one shard, its servers and its pool all in this process."""

    def __init__(
        self,
        shard: Shard,
        parameters: ParameterServer,
        pool: TensorPool,
        evaluation: Plan,
        *,
        mode: str,
        threads: int,
        deadline_s: float,
        bf16: bool,
    ) -> None:
        self._shard, self._pool, self._parameters = shard, pool, parameters
        self._mode, self._bf16 = mode, bf16
        self._arena = Arena()
        self._losses: dict[int, float] = {}
        self._training: Pass | None = None
        self._evaluation = self._forward_pass(evaluation)
        self._engine = Engine(threads, deadline_s)
        self._static = self._evaluation.server.gather_static(self._each_interval)
        if not evaluation.reads_features:
            shard.forget_features()

    def prepare_training(self, plan: Plan, targets: Targets, *, seed: int, keep_graph: bool, first_epoch: int) -> None:
        """Make ready to train by a plan, from an epoch on."""
        steps = steps_of(plan, backward=True)
        server = GraphServer(
            self._shard, self._shard.layout, plan, steps, self._arena,
            training=True, targets=targets, seed=seed, bf16=self._bf16, keep_graph=keep_graph,
        )  # fmt: skip
        server.share_static(self._static)
        self._training = Pass(server, steps, self._reads, self._mode, first_epoch)

    def train_epoch(self) -> EpochReport:
        """One epoch: forward, backward, weight update."""
        assert self._training is not None
        self._losses.clear()
        start = time.perf_counter()
        spans = self._run(self._training)
        seconds = time.perf_counter() - start
        loss = sum(self._losses[interval] for interval in sorted(self._losses))
        return EpochReport(loss, seconds, spans)

    def logits(self) -> NDArray[np.float32]:
        """Every vertex's logits from an exact forward pass with the current weights, in the graph's own order."""
        return self.outputs(-1)

    def outputs(self, layer: int) -> NDArray[np.float32]:
        """A layer's output for every vertex, likewise, where the evaluation plan stores it."""
        self._run(self._evaluation)
        rows = self._evaluation.server.layer_output(layer)
        out = np.empty_like(rows)
        out[self._shard.ids] = rows
        return out

    def close(self) -> None:
        """Stop threads and pool."""
        self._engine.close()
        self._pool.close()

    def _forward_pass(self, plan: Plan) -> Pass:
        steps = steps_of(plan, backward=False)
        layout = self._shard.layout.everything()
        server = GraphServer(self._shard, layout, plan, steps, self._arena, training=False, bf16=self._bf16)
        return Pass(server, steps, self._reads, self._mode, 0)

    @cached_property
    def _reads(self) -> Reads:
        return self._shard.reads()

    def _run(self, forward: Pass) -> list[Span]:
        spans = self._engine.run(forward.scheduler, forward.epoch, self._executor(forward.server))
        forward.epoch += 1
        return spans

    def _executor(self, server: GraphServer) -> Callable[..., None]:
        parameters, pool = self._parameters, self._pool

        def execute(task: Task, done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
            def accept(reply: Reply) -> None:
                try:  # a pool may answer from a thread of its own, where nobody would hear of the error
                    server.accept(task, reply)
                    if task.kind in (Kind.LOSS, Kind.GRAD_APPLY_VERTEX, Kind.GRAD_APPLY_EDGE):
                        parameters.push(task.step, task.interval, reply.weight_grads)
                    if task.kind is Kind.LOSS:
                        self._losses[task.interval] = reply.loss
                    server.finished(task)
                except Exception as error:
                    failed(error)
                else:
                    done()

            if task.kind in DENSE:
                call = server.call(task, parameters.pull())
                pool.submit(call, accept, lambda error: failed(_in_body(call, error)))
                return
            if task.kind is Kind.WEIGHT_UPDATE:
                parameters.update()
            else:
                server.run(task)
            server.finished(task)
            done()

        return execute

    def _each_interval(self, work: Callable[[int], None]) -> None:
        """Do something for every interval on the engine's threads."""
        table = TaskTable((Step(Kind.GATHER, 0),))
        once = Scheduler(table, self._reads)

        def execute(task: Task, done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
            work(task.interval)
            done()

        self._engine.run(once, 0, execute)


def _in_body(call: Call, error: BaseException) -> BaseException:
    """An error of a dense body, told in the words of whoever wrote the layer."""
    if isinstance(error, DorylusError):
        return error
    where = f"on interval {call.task.interval} in epoch {call.task.epoch + 1}"
    told = TrainingError(f"{call.body.label} failed {where}: {type(error).__name__}: {error}")
    told.__cause__ = error
    return told
