"""The trainer: epochs, evaluations, checkpoints, and when to stop."""

import math
import statistics
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Self, Unpack

from torch import Tensor

from dorylus import process_memory
from dorylus.backends import Backend
from dorylus.config import ResumeSettings, RunConfig, RunSettings, lists_settings, recut
from dorylus.cost import Phase
from dorylus.errors import (
    ConfigError,
    DataError,
    DeadlineError,
    DivergedError,
    DorylusError,
    Terminated,
    TrainingError,
    given,
)
from dorylus.graph import Graph
from dorylus.partition import METHODS
from dorylus.pools import PoolFault, PoolHandle, TensorPool, check_pool
from dorylus.runs import (
    Checkpoint,
    CheckpointStore,
    Restored,
    RunLog,
    RunProgress,
    RunSpec,
    Sink,
    TrainedOn,
    check_loggers,
    check_sinks,
    checkpoint,
    fingerprint_of,
    graph_identity,
    restore,
)
from dorylus.runtime import EpochDroppedError, EpochReport, Job, Runtime, ServersLostError
from dorylus.saga import Program, Recipe
from dorylus.settings import whole
from dorylus.training.assembly import assemble, bind, check_finite, check_trainable, threads_of
from dorylus.training.evaluation import early_stopping, evaluate, is_synchronous, last_startable_epoch, score_of
from dorylus.training.interrupt import GRACE_S, Interrupt, terminable
from dorylus.training.optim import OptimizerFactory, ScheduleFactory, make_lr_schedule, make_optimizer
from dorylus.training.placement import check_backend, check_cluster, make_runtime, pool_handle, training_job
from dorylus.training.result import Result
from dorylus.training.run_records import RunRecords, memory_record, run_record

Model = Recipe | Program
RECENT_EPOCHS = 5  # the next epoch is expected to take the median time of the last ones


class Trainer:
    """One run, epoch by epoch. :func:`train` makes one and runs it to the end.

    ``records`` are those of a stopped run, which :meth:`resume` passes: they have its settings and its spec.
    """

    @lists_settings
    def __init__(
        self,
        graph: Graph,
        model: Model,
        *,
        optimizer: str | OptimizerFactory | None = None,
        lr_schedule: str | ScheduleFactory | None = None,
        pool: str | TensorPool | PoolHandle | None = None,
        backend: Backend | None = None,
        sinks: Iterable[Sink] = (),
        spec: RunSpec | None = None,
        records: RunRecords | None = None,
        **settings: Unpack[RunSettings],
    ) -> None:
        sinks = check_sinks(sinks)
        named = {"optimizer": optimizer, "lr_schedule": lr_schedule, "pool": pool}
        names = {name: value for name, value in named.items() if isinstance(value, str)}
        if records is not None and (settings or names or spec is not None or pool is not None):
            raise TypeError("records are of a run that has its settings, its pool and its spec: give none beside them.")
        self._records = RunRecords.new(RunConfig.of(**settings, **names), spec) if records is None else records
        self._accounts = self._records.accounts
        with self._records.undone_on_error():
            self._set_up(
                graph,
                model,
                None if isinstance(optimizer, str) else optimizer,
                None if isinstance(lr_schedule, str) else lr_schedule,
                None if isinstance(pool, str) else pool,
                backend,
            )
            restored = self._begin(_spec_of(graph, model, spec)) if self._records.is_new else self._continue()
            self._progress, self._best, self._start_state = restored.progress, restored.best, restored.state
            if not self._records.is_new:
                self._check_budget()
            self._records.start_log(
                sinks, restored.epoch, run_record(self.graph, self.program, self._made, self.config)
            )
            if self._parts.limits is not None:
                self.log.write("memory", **memory_record(self._parts.limits))

    @classmethod
    @lists_settings
    def resume(
        cls,
        run_dir: str | PathLike[str],
        graph: Graph | None = None,
        model: Model | None = None,
        *,
        optimizer: OptimizerFactory | None = None,
        lr_schedule: ScheduleFactory | None = None,
        backend: Backend | None = None,
        sinks: Iterable[Sink] = (),
        **settings: Unpack[ResumeSettings],
    ) -> Self:
        """A run that was stopped, ready to continue from its last checkpoint (or from the beginning without one).

        Graph and model are made again from the run folder unless they are given; a graph that has moved is noted there,
        if it was loaded from its new place. ``settings`` may change how the work
        is divided (servers, intervals and so on), which leaves the result the same to rounding; not what is computed.
        """
        given_names = {"optimizer": optimizer, "lr_schedule": lr_schedule}
        named = {name: value for name, value in given_names.items() if isinstance(value, str)}  # refused: see recut
        records = RunRecords.stopped(run_dir, {**settings, **named})
        with records.undone_on_error():
            assert records.folder is not None
            if isinstance(model, Program):
                checkpoint.check(records.folder.checkpoints, fingerprint_of(model))  # before the graph is loaded
            made = records.folder.load_graph() if graph is None else graph
            model = records.folder.spec.build_model() if model is None else model
            objects: dict[str, Any] = {"optimizer": optimizer, "lr_schedule": lr_schedule, "backend": backend}
            trainer = cls(made, model, **objects, sinks=sinks, records=records)
            if graph is not None:
                records.note_origin(graph, trainer.config)
            return trainer

    def _set_up(
        self,
        graph: Graph,
        model: Model,
        optimizer: OptimizerFactory | None,
        lr_schedule: ScheduleFactory | None,
        pool: TensorPool | PoolHandle | None,
        backend: Backend | None,
    ) -> None:
        """Make all checks that can refuse a run, before anything is written or computed."""
        config = self._records.config
        check_loggers(config.log_to)
        process_memory.reset_peak()
        check_trainable(graph, config)
        self.graph, self.program = graph, bind(model, graph, config.seed)
        if self._records.folder is not None:  # a stopped run's: a new one has none yet
            checkpoint.check(self._records.folder.checkpoints, fingerprint_of(self.program))
        check_pool(config, address=config.address, is_local=config.cluster == "local")
        self._pool = pool_handle(pool)
        self._backend = check_backend(backend, config)
        config = check_cluster(config, pool)
        if not any(True for _ in self.program.parameters()):
            raise ConfigError("the model has no weights, so there is nothing to train: add a layer that has some.")
        self._made = _made(model) or {"name": "program"}
        names = [name for name, _ in self.program.named_parameters()]
        self._make_optimizer = partial(make_optimizer, config, factory=optimizer, names=names)
        self._make_lr_schedule = partial(make_lr_schedule, config, factory=lr_schedule)
        self._make_lr_schedule(self._make_optimizer(list(self.program.named_parameters())))  # the last refusal
        self._cut(config)
        if self._accounts.rates.function is not None:
            self._accounts.begun = self._begun_invocations
        self._runtime: Runtime | None = None
        self._in_use = threading.Lock()
        self._has_begun = False  # servers have started: later errors are failures, not refusals
        self._closed = False
        self._last_startable = -1  # the newest epoch, from 0, that an interval may have started
        self._sound = -1  # weights after this many epochs gave a finite loss or evaluation; so did all before the last

    def _cut(self, config: RunConfig) -> None:
        """Divide the graph over the servers, and keep every setting as it is resolved.

        The bits of a run depend on its intervals, so a resumed run must have the same.
        """
        self._parts = assemble(self.graph, self.program, config, self._backend)
        intervals = self._parts.cut.layouts[0].num_intervals
        self.config = replace(config, intervals=intervals, threads=threads_of(config), keep=config.kept)

    def _begin(self, spec: RunSpec) -> Restored:
        if self.config.run_dir is None:
            return Restored(RunProgress())
        trained_on = TrainedOn.of(self.graph, graph_identity(self.graph))
        self._records.write_folder(spec, self.config, trained_on)
        return Restored(RunProgress(graph=trained_on.identity))

    def _continue(self) -> Restored:
        folder = self._records.folder
        assert folder is not None
        return restore(folder, self.program, graph_identity(self.graph), best=self.config.keep == "best")

    def _check_budget(self) -> None:
        """Refuse to continue a run that its budget leaves no epoch for; else write the settings it continues with."""
        self._accounts.continue_run(self._progress.used, self.epoch)
        if self._progress.stopped is None and self.epoch < self.config.epochs:
            if not self._accounts.allow_epoch():
                raise self._accounts.refuse()
            if self._records.is_recut and self._records.folder is not None:
                self._records.folder.with_config(self.config).write()

    @property
    def log(self) -> RunLog:
        """The run log."""
        return self._records.log

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self._progress.losses)

    def run(self, epochs: int | None = None) -> Self:
        """Train until the settings say stop, or for so many epochs more. One thread at a time runs a trainer."""
        if epochs is not None:
            whole(1)("epochs", epochs)
        if not self._in_use.acquire(blocking=False):
            raise TrainingError(
                "the trainer is training already, and one thread at a time trains a run: wait until the other call of "
                f"Trainer.run has returned, or make another Trainer, with a {given('run_dir')} of its own."
            )
        try:
            with self._records.spelling():
                return self._run(epochs)
        finally:
            self._in_use.release()

    def _run(self, epochs: int | None) -> Self:
        until = self.config.epochs if epochs is None else min(self.config.epochs, self.epoch + epochs)
        try:
            with Interrupt(self.config.grace_s, self._drop_epoch) as interrupt:
                try:
                    self._epochs(until, interrupt)
                except EpochDroppedError:
                    self._save_finished_epochs()
                    raise Terminated(interrupt.signal) from None
        except (PoolFault, DeadlineError, ServersLostError) as fault:
            raise self._given_up(fault) from fault
        except DivergedError as error:
            raise self._diverged(error) from error
        except (ConfigError, DataError):
            if not self._has_begun and self._records.is_new and self._records.folder is not None and self.epoch == 0:
                self._close_runtime()
                self._records.discard()
                self._closed = True
            raise
        if self.epoch >= self.config.epochs and self._progress.stopped is None:
            self._stop("epochs")
        return self

    def _epochs(self, until: int, interrupt: Interrupt) -> None:
        while (self.epoch < until or self._progress.unevaluated) and self._progress.stopped is None:
            if not self._accounts.allow_epoch():
                if self.epoch == 0:
                    raise self._accounts.refuse()
                self._stop("budget")
                self._save()
                break
            if not interrupt.deferring:
                self._started()
                interrupt.defer()  # from here on there is something to save
                self._has_begun = True
            if self._progress.unevaluated:
                self._after_epoch()
            else:
                # An epoch that has begun is finished whatever it costs: with a budget the next begins only after it.
                self._one_epoch(self.epoch + 1 if self._accounts.has_budget else until, interrupt)
            if interrupt.requested:
                self._interrupted(interrupt)

    def _one_epoch(self, until: int, interrupt: Interrupt) -> None:
        recent = self._progress.epoch_seconds[-RECENT_EPOCHS:]
        interrupt.expected_s = time.monotonic() + statistics.median(recent) if recent else None
        self._train(until)
        if not interrupt.ending:  # else the run is saved now, and evaluated when it is resumed
            self._after_epoch()

    def _train(self, until: int) -> None:
        self._records.keep_lock()
        last = last_startable_epoch(self.config, self._progress, until)
        self._last_startable = max(self._last_startable, last)
        runtime = self._started()
        self._accounts.enter(Phase.TRAINING)
        try:
            report = runtime.train_epoch(self._last_startable, self._progress.exact_from)
        except DivergedError:
            self._sound = self.epoch  # the step failed: the weights before it gave a loss
            raise
        self._accounts.enter(Phase.EVALUATION)
        if not math.isfinite(report.loss):
            check_finite(self.graph)
            raise DivergedError(f"the loss of epoch {self.epoch + 1} is {report.loss}")
        self._note(report)

    def _note(self, report: EpochReport) -> None:
        usd = self._accounts.end_epoch()
        self._progress.add(report, usd)
        self._progress.unevaluated = self.config.eval_every > 0 and self.epoch % self.config.eval_every == 0
        self._records.note_epoch(report, self.epoch, usd)

    def _after_epoch(self) -> None:
        """Evaluate and save, where these are due after the epoch."""
        if self._progress.unevaluated:
            self._evaluate()
            self._progress.unevaluated = False
        elif self._accounts.needs_closing_cost:
            with self._accounts.evaluation():
                self._started().outputs()
        last = self.epoch == self.config.epochs or self._progress.stopped is not None
        if last or (self.config.checkpoint_every and self.epoch % self.config.checkpoint_every == 0):
            self._save()

    def _evaluate(self) -> None:
        runtime, config = self._started(), self.config
        held = config.keep == "best" or config.mode == "async"  # one version, also while updates arrive
        weights = runtime.state().weights if held else None
        with self._accounts.evaluation():
            scores = evaluate(self.graph, runtime.outputs(weights=weights))
        self._sound = self.epoch
        self.log.write("evaluation", epoch=self.epoch, **scores)
        self._progress.note_scores(scores, self.epoch)
        score = score_of(scores, self.graph.multilabel)
        if score is None:
            return
        decision = early_stopping(self._progress, score, self.epoch, config)
        if decision.best and config.keep == "best":
            self._best = weights
            if self._records.folder is not None:
                CheckpointStore(self._records.folder).save_best(self._state(weights))
        if decision.near_target and self._progress.exact_from is None:
            self._progress.exact_from = self.epoch
            self.log.write("synchronous", epoch=self.epoch, score=score)
        if decision.stop is not None:
            self._stop(decision.stop)
            self._best = self._best or weights  # the weights that were evaluated, not later ones

    def _stop(self, reason: str) -> None:
        self._progress.stopped = reason
        self.log.write("stop", reason=reason, epoch=self.epoch)

    def _state(self, weights: dict[str, Tensor] | None = None) -> Checkpoint:
        state = self._started().state()
        self._progress.used = self._accounts.to_dict()
        return Checkpoint(
            epoch=self.epoch,
            weights={**self.program.state_dict(), **(weights or state.weights)},
            optimizer=state.optimizer,
            lr_schedule=state.lr_schedule,
            progress=self._progress.to_dict(),
            spec=self.program.describe(),
        )

    def _save(self) -> None:
        folder = self._records.folder
        if folder is None:
            return
        final = self._best if self.config.keep == "last" else None  # the weights of a run stopped by its score
        path = CheckpointStore(folder).save(self._state(final))
        folder.write_used(self._progress.used)
        self.log.write("checkpoint", epoch=self.epoch, path=str(path))

    def _started(self) -> Runtime:
        """The runtime, started when it is first needed."""
        if self._closed:
            raise TrainingError(
                "the trainer is closed: continue with Trainer.resume, or make the result before closing it."
            )
        if self._runtime is None:
            job = self._job()
            self._runtime = make_runtime(job, self.config, self._pool, self._records, self._fewer_servers)
            if self._start_state is not None:
                self._runtime.restore(self._start_state)
            self._runtime.ready()
        self._records.set_up.finished()
        return self._runtime

    def _job(self) -> Job:
        given_as_objects = self._make_optimizer, self._make_lr_schedule, self._backend
        return training_job(self.graph, self.program, self._parts, self.config, *given_as_objects, self.epoch)

    def _fewer_servers(self) -> Job | None:
        """The job for one server less; None where the settings do not allow that."""
        config = self.config
        if not config.elastic or config.servers == 1 or config.partition not in METHODS:
            return None
        self._cut(recut(config.to_dict(), {"servers": config.servers - 1}))
        return self._job()

    def _begun_invocations(self) -> int:
        """How many invocations the run's own pool has begun, if it is in this process; any thread may call this."""
        runtime, own = self._runtime, self._pool is None and self.config.cluster == "local"
        return int(runtime.figures().get("invocations", 0)) if runtime is not None and own else 0

    def _drop_epoch(self) -> None:
        if self._runtime is not None:
            self._runtime.drop_epoch()

    def _interrupted(self, interrupt: Interrupt) -> None:
        """Finish the epochs that intervals have started, save, and raise the exception of the signal."""
        while self.epoch <= self._last_startable and self._progress.stopped is None:
            self._one_epoch(self._last_startable + 1, interrupt)
        if self._progress.stopped is None:
            self._stop("interrupted")
        self._save()
        if interrupt.ending:
            raise Terminated(interrupt.signal)
        raise KeyboardInterrupt

    def _save_finished_epochs(self) -> None:
        """Save a run whose epoch was dropped; where intervals ran ahead, its last checkpoint stays the newest."""
        self._stop("interrupted")
        if self.epoch and (is_synchronous(self.config, self._progress) or self.epoch > self._last_startable):
            self._save()

    def _given_up(self, fault: PoolFault | DeadlineError | ServersLostError) -> TrainingError:
        """Save the finished epochs after a fault that is not recovered from; the error says how to continue."""
        self.log.write("fault", epoch=self.epoch, error=str(fault))
        kind = next(each for each in (PoolFault, ServersLostError, DeadlineError) if isinstance(fault, each))
        if self._records.folder is None:
            return kind(
                f"{fault.message} The run has no folder, so its {self.epoch} epochs are lost: use {given('run_dir')}."
            )
        try:
            self._save()
            saved = f"The run is saved after epoch {self.epoch}"
        except ServersLostError:
            saved = "Epochs since the last checkpoint are lost with the servers"
        path = self._records.folder.path
        return kind(f"{fault.message} {saved}: remove the cause, and continue with dorylus resume {path}.")

    def _diverged(self, error: DivergedError) -> DivergedError:
        """Keep the last checkpoint whose outputs are finite; the error says which that is."""
        self.log.write("stop", reason="diverged", epoch=self.epoch)
        folder = self._records.folder
        where = "" if folder is None else f", in another {given('run_dir')},"
        lower = f"{given('lr')} well below {self.config.lr:g} (0.01 is usual)"
        cure = f"Train again{where} with {lower}, or row-normalised features"
        if folder is None:
            return DivergedError(f"training diverged: {error.message}. {cure}.")
        store = CheckpointStore(folder)
        while (newest := store.newest) is not None and not self._is_sound(newest):
            store.drop(newest)
        if newest is None:
            return DivergedError(f"training diverged: {error.message}. There is no checkpoint from before. {cure}.")
        return DivergedError(
            f"training diverged: {error.message}. The checkpoint {newest} is from before, and is kept: dorylus predict "
            f"{folder.path} reads it, and dorylus resume continues from it, with the same {given('lr')}. {cure}."
        )

    def _is_sound(self, path: Path) -> bool:
        """Whether a forward pass with a checkpoint's weights is finite; True where that cannot be computed."""
        if checkpoint.epoch_of(path) <= max(self._sound, self.epoch - 1):
            return True
        try:
            saved = checkpoint.load(path).weights
            weights = {name: saved[name] for name, _ in self.program.named_parameters()}
            evaluate(self.graph, self._started().outputs(weights=weights))
        except DivergedError:
            return False
        except DorylusError:
            return True
        return True

    def result(self) -> Result:
        """The run's result so far, its scores from an exact forward pass with the weights it holds."""
        try:
            return self._result()
        except (PoolFault, DeadlineError, ServersLostError) as fault:
            raise self._given_up(fault) from fault
        except DivergedError as error:
            raise self._diverged(error) from error

    def _result(self) -> Result:
        runtime = self._started()
        weights = self._best or runtime.state().weights
        metrics = evaluate(self.graph, runtime.outputs(weights=weights))
        model = deepcopy(self.program)
        model.load_state_dict({**model.state_dict(), **weights})
        runtime.settle()
        self._accounts.enter(Phase.EVALUATION)
        result = Result.of(
            self._progress,
            bill=self._accounts.bill(),
            pool=dict(runtime.figures()),
            model=model,
            metrics=metrics,
            peak_memory_bytes=process_memory.peak_bytes(),
            server_peak_memory_bytes=runtime.peaks(),
            work=self._parts.work,
            config=self.config,
            graph=self.graph,
            backend=self._backend,
        )
        self.log.write("result", **result.summary(), run_dir=self.config.run_dir)
        if self._records.folder is not None:
            self._records.folder.write_metrics(result.summary())
            self._records.folder.write_used(self._accounts.to_dict())
        return result

    def close(self) -> None:
        """Stop the servers, end the log, and release the run folder."""
        self._closed = True
        with closing(self._records):
            self._close_runtime()

    def _close_runtime(self) -> None:
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _spec_of(graph: Graph, model: Model, spec: RunSpec | None) -> RunSpec:
    """How graph and model are made again: as ``spec`` says, else as far as they themselves do."""
    spec = spec or RunSpec()
    return replace(spec, graph=spec.graph or graph.origin or {}, model=spec.model or _made(model))


def _made(model: Model) -> dict[str, Any]:
    """The name and all options of a builder's model, the defaults too; nothing for a Program."""
    return {} if isinstance(model, Program) else {"name": model.name, **model.options}


def _with_progress(progress: bool | None, sinks: Iterable[Sink]) -> AbstractContextManager[Iterable[Sink]]:
    """The sinks, with one that shows the progress where that is wanted; what draws it is loaded only there."""
    is_seen = "IPython" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    if progress is False or (progress is None and not is_seen):
        return nullcontext(sinks)

    from dorylus.report import shown_progress

    return shown_progress(progress, sinks)


@lists_settings
def train(
    graph: Graph,
    model: Model,
    *,
    optimizer: str | OptimizerFactory | None = None,
    lr_schedule: str | ScheduleFactory | None = None,
    pool: str | TensorPool | PoolHandle | None = None,
    backend: Backend | None = None,
    sinks: Iterable[Sink] = (),
    spec: RunSpec | None = None,
    progress: bool | None = None,
    **settings: Unpack[RunSettings],
) -> Result:
    """Train a model on the whole graph; see also :class:`Trainer`.

    ``model`` is one of a builder (``dorylus.gcn(hidden=16)``) or a :class:`Program`. ``progress`` shows epochs, loss,
    rate, time left and dollars while the run goes on: True, False, or None, where a terminal or notebook decides.
    ``sinks`` get every record of the run log. ``pool``, ``optimizer`` and ``lr_schedule`` are names or objects.
    """
    with (
        _with_progress(progress, sinks) as sinks,
        terminable(settings.get("grace_s", GRACE_S)),
        Trainer(
            graph,
            model,
            optimizer=optimizer,
            lr_schedule=lr_schedule,
            pool=pool,
            backend=backend,
            sinks=sinks,
            spec=spec,
            **settings,
        ) as trainer,
    ):
        return trainer.run().result()


@lists_settings
def resume(
    run_dir: str | PathLike[str],
    graph: Graph | None = None,
    model: Model | None = None,
    *,
    optimizer: OptimizerFactory | None = None,
    lr_schedule: ScheduleFactory | None = None,
    backend: Backend | None = None,
    sinks: Iterable[Sink] = (),
    progress: bool | None = None,
    **settings: Unpack[ResumeSettings],
) -> Result:
    """Continue a run that was stopped, to the same result as if it had not been; ``progress`` as in :func:`train`."""
    with (
        _with_progress(progress, sinks) as sinks,
        terminable(settings.get("grace_s", GRACE_S)),
        Trainer.resume(
            run_dir,
            graph,
            model,
            optimizer=optimizer,
            lr_schedule=lr_schedule,
            backend=backend,
            sinks=sinks,
            **settings,
        ) as trainer,
    ):
        return trainer.run().result()
