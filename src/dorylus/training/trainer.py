"""The trainer: epochs, evaluations, checkpoints, and when to stop."""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from torch import Tensor

from dorylus import process_memory
from dorylus.config import ResumeSettings, RunConfig, RunSettings, lists_settings, recut
from dorylus.cost import Phase
from dorylus.errors import ConfigError, DataError, DeadlineError, DivergedError, DorylusError, Terminated, TrainingError
from dorylus.graph import Graph
from dorylus.pools import PoolFault, PoolHandle, TensorPool, check_pool
from dorylus.runs import (
    LEDGER,
    Checkpoint,
    CheckpointStore,
    JsonlSink,
    RunFolder,
    RunLock,
    RunLog,
    RunProgress,
    RunSpec,
    Sink,
    UsageLedger,
    check_free,
    checkpoint,
    graph_identity,
    last_time,
    make_folder,
    newest,
    read_ledger,
    restore,
)
from dorylus.runtime import Cluster, EpochDroppedError, EpochReport, ServersLostError
from dorylus.saga import Program, Recipe
from dorylus.training.accounts import Accounts
from dorylus.training.assembly import bind, check_finite, check_trainable
from dorylus.training.early_stopping import judge, last_startable_epoch
from dorylus.training.elastic import ElasticCluster, RunListeners, check_cluster
from dorylus.training.evaluation import evaluate, score_of
from dorylus.training.interrupt import GRACE_S, Interrupt, terminable
from dorylus.training.optim import OptimizerFactory, ScheduleFactory
from dorylus.training.records import SetupProgress, epoch_record, memory_record, run_record
from dorylus.training.result import Result

Model = Recipe | Program
RECENT_EPOCHS = 5  # whose median says how long the next one takes
T = TypeVar("T")


class Trainer:
    """One run, epoch by epoch. :func:`train` is this from beginning to end."""

    _folder: RunFolder | None
    _ledger: UsageLedger | None  # what the run has used, written down in its folder
    _used_before: dict[str, Any] | None  # of that, before this process began
    _made: list[Path]  # folders, for a new run
    _has_begun = False  # there were servers: from then on a run is not refused any more, it fails

    @lists_settings
    def __init__(
        self,
        graph: Graph,
        model: Model,
        *,
        optimizer: str | OptimizerFactory | None = None,
        lr_schedule: str | ScheduleFactory | None = None,
        pool: str | TensorPool | PoolHandle | None = None,
        sinks: Iterable[Sink] = (),
        spec: RunSpec | None = None,
        **settings: Unpack[RunSettings],
    ) -> None:
        named = {"optimizer": optimizer, "lr_schedule": lr_schedule, "pool": pool}
        names = {name: given for name, given in named.items() if isinstance(given, str)}
        config = RunConfig.of(**settings, **names)
        optimizer_factory = None if isinstance(optimizer, str) else optimizer
        schedule_factory = None if isinstance(lr_schedule, str) else lr_schedule
        given_pool = None if isinstance(pool, str) else pool
        self._accounts = Accounts(config, since_s=None if spec is None else spec.take_loading_since_s())
        self._is_new = True
        with self._holding():
            if config.run_dir is not None:
                self._begin_in(Path(config.run_dir))
            self._set_up(graph, model, config, optimizer_factory, schedule_factory, given_pool)
            if config.run_dir is not None:
                self._folder = RunFolder.create(config.run_dir, spec, self.config)
                self._folder.sweep()
                self._progress.graph = graph_identity(graph)
            self._start_log(sinks, resumed_from=None)

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
        sinks: Iterable[Sink] = (),
        **settings: Unpack[ResumeSettings],
    ) -> Self:
        """A run that was stopped, ready to go on from its last checkpoint (or from the beginning, if it has none).

        Graph and model are made again from the run folder unless they are given. ``settings`` may say anew how the
        work is cut (servers, intervals and so on), which leaves the result the same to rounding; not what it is.
        """
        began_s = time.perf_counter()
        RunFolder.open(run_dir)  # a folder that holds no run is refused, and nothing is written to it
        trainer = cls.__new__(cls)
        trainer._is_new = False
        with trainer._holding():
            trainer._hold(Path(run_dir))
            folder = RunFolder.open(run_dir)
            trainer._folder = folder = folder.with_config(recut(folder.config, settings))
            trainer._accounts = Accounts(folder.config, since_s=began_s)
            trainer._keep_ledger(folder.ledger, folder.read_used())
            folder.sweep()
            graph = folder.load_graph() if graph is None else graph
            model = folder.spec.build_model() if model is None else model
            trainer._set_up(graph, model, folder.config, optimizer, lr_schedule)
            restored = restore(folder, trainer.program, graph_identity(graph), best=trainer.config.keep == "best")
            trainer._progress, trainer._best = restored.progress, restored.best
            if restored.state is not None:
                trainer._fleet.go_on_from(restored.state)
            trainer._check_budget()
            if settings and trainer._progress.stopped is None and trainer.epoch < trainer.config.epochs:
                folder.with_config(trainer.config).write()
            trainer._start_log(sinks, restored.epoch)
        return trainer

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """While a trainer is made: when it cannot be, it lets go of what it holds already.

        A new run that is refused leaves nothing. One that a signal ends leaves what it used, as a killed one does.
        """
        self._holds, self._made = ExitStack(), []
        self._folder, self._ledger, self._used_before = None, None, None
        try:
            yield
        except BaseException as error:
            if self._is_new and isinstance(error, Exception | KeyboardInterrupt):
                self._charge_nothing()
            self._holds.close()
            self._remove_made()
            raise

    def _hold(self, run_dir: Path) -> None:
        """Take the run folder for this process alone, before anything is written to it or swept from it."""
        self._lock = RunLock(run_dir)
        self._holds.callback(self._lock.release)

    def _begin_in(self, run_dir: Path) -> None:
        """Take the folder of a new run. What one that was killed there during its set-up has used is on its bill."""
        self._made = make_folder(run_dir)
        self._hold(run_dir)
        check_free(run_dir)  # another process may have made a run there, and ended it, just now
        ledger = run_dir / LEDGER
        self._keep_ledger(ledger, read_ledger(ledger) if ledger.is_file() else None)

    def _keep_ledger(self, path: Path, used_before: dict[str, Any] | None) -> None:
        """Write down what the run uses, from this moment on, on top of what it had used before."""
        self._used_before = used_before
        if used_before:
            self._accounts.go_on_from(used_before)
        self._ledger = UsageLedger(path, self._accounts.up_to_now)
        self._holds.callback(self._ledger.close)
        self._ledger.write()

    def _charge_nothing(self) -> None:
        """What this process has used is on no bill: it was refused."""
        if self._ledger is not None:
            with suppress(OSError, DorylusError):  # it is being refused already, for another reason
                self._ledger.take_back(self._used_before)

    def _remove_made(self) -> None:
        """Remove the folders that were made for a new run, unless something is in them."""
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()

    def _set_up(
        self,
        graph: Graph,
        model: Model,
        config: RunConfig,
        optimizer: OptimizerFactory | None,
        lr_schedule: ScheduleFactory | None,
        pool: TensorPool | PoolHandle | None = None,
    ) -> None:
        """Everything that can be refused is refused here, before a run is written or computed."""
        process_memory.reset_peak()
        check_trainable(graph, config)
        check_pool(config, address=config.address, is_local=config.cluster == "local")
        config = check_cluster(config, pool)
        self.program = bind(model, graph, config.seed)
        if not any(True for _ in self.program.parameters()):
            raise ConfigError("the model has no weights, so there is nothing to train: give it a layer that has some.")
        self._name = model.name if isinstance(model, Recipe) else "program"
        given = PoolHandle(pool) if pool is not None and not isinstance(pool, PoolHandle) else pool
        self.graph = graph
        self._fleet = ElasticCluster(graph, self.program, config, optimizer, lr_schedule, given)
        if self._accounts.rates.function is not None:
            self._accounts.begun = self._fleet.begun_invocations
        self._progress = RunProgress()
        self._best: dict[str, Tensor] | None = None
        self._closed = False
        self._permitted = -1  # the newest epoch, from 0, that any interval may have begun
        self._sound = -1  # after so many epochs, weights gave a finite loss or evaluation; so did all before the last

    def _start_log(self, sinks: Iterable[Sink], resumed_from: int | None) -> None:
        to_file, started_s = [], 0.0
        if self._folder is not None:
            if resumed_from is not None:
                started_s = last_time(self._folder.log)
            to_file = [JsonlSink(self._folder.log, append=resumed_from is not None)]
        self.log = RunLog([*to_file, *sinks], started_s=started_s)
        self._setting_up = SetupProgress(self.log.write)
        self.log.write(
            "run",
            **run_record(self.graph, self.program, self._name, self.config),
            resumed_from=resumed_from,
            run_dir=None if self._folder is None else str(self._folder.path),
        )
        if self._folder is not None and not self._lock.by_kernel:
            self.log.write("unlocked", run_dir=str(self._folder.path))
        if self._fleet.assembly.limits is not None:
            self.log.write("memory", **memory_record(self._fleet.assembly.limits))

    @property
    def config(self) -> RunConfig:
        """The settings, all of them as they came out."""
        return self._fleet.config

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self._progress.losses)

    def run(self, epochs: int | None = None) -> Self:
        """Train until the settings say stop, or for so many epochs more. One thread at a time runs a trainer."""
        with self._fleet.in_one_thread():
            return self._run(epochs)

    def _run(self, epochs: int | None) -> Self:
        until = self.config.epochs if epochs is None else min(self.config.epochs, self.epoch + epochs)
        try:
            with Interrupt(self.config.grace_s, self._fleet.drop) as interrupt:
                try:
                    self._epochs(until, interrupt)
                except EpochDroppedError:
                    self._save_what_is_done()
                    raise Terminated(interrupt.signal) from None
        except (PoolFault, DeadlineError, ServersLostError) as fault:
            raise self._given_up(fault) from fault
        except DivergedError as found:
            raise self._diverged(found) from found
        except (ConfigError, DataError):
            if not self._has_begun:
                self._leave_nothing()
            raise
        if self.epoch >= self.config.epochs and self._progress.stopped is None:
            self._stop("epochs")
        return self

    def _epochs(self, until: int, interrupt: Interrupt) -> None:
        while (self.epoch < until or self._progress.unevaluated) and self._progress.stopped is None:
            if not self._accounts.allow_epoch():
                if self.epoch == 0:
                    self._charge_nothing()
                    raise ConfigError(self._accounts.why_not())
                self._stop("budget")
                self._save()
                break
            if not interrupt.deferring:
                self._elastically(self._running)
                interrupt.defer()  # until now there was nothing to save
                self._has_begun = True
            if self._progress.unevaluated:
                self._elastically(self._look_at_epoch)
            else:
                # What is begun is finished, at any price: with a budget nothing begins before an epoch is over.
                self._one_epoch(self.epoch + 1 if self._accounts.has_budget else until, interrupt)
            if interrupt.asked:
                self._interrupted(interrupt)

    def _given_up(self, fault: PoolFault | DeadlineError | ServersLostError) -> TrainingError:
        """Whatever runs tasks has failed for good: save the epochs that are done, and say how to go on."""
        self.log.write("fault", epoch=self.epoch, error=str(fault))
        kind = next(each for each in (PoolFault, ServersLostError, DeadlineError) if isinstance(fault, each))
        if self._folder is None:
            return kind(f"{fault} The run has no folder, so its {self.epoch} epochs are lost: give run_dir.")
        try:
            self._save()
            saved = f"The run is saved after epoch {self.epoch}"
        except ServersLostError:
            saved = "Epochs since the last checkpoint are lost with the servers"
        return kind(f"{fault} {saved}: mend it, and go on with dorylus resume {self._folder.path}.")

    def _diverged(self, found: DivergedError) -> DivergedError:
        """Numbers have left the range of float32: keep the last checkpoint that is sound, and say which that is."""
        self.log.write("stop", reason="diverged", epoch=self.epoch)
        where = "" if self._folder is None else ", in another run_dir,"
        cure = (
            f"Train again{where} with an lr well below {self.config.lr:g} (0.01 is usual), or row-normalised features"
        )
        if self._folder is None:
            return DivergedError(f"training diverged: {found}. {cure}.")
        keeper = CheckpointStore(self._folder)
        while (newest := keeper.newest) is not None and not self._is_sound(newest):
            keeper.drop(newest)
        if newest is None:
            return DivergedError(f"training diverged: {found}. There is no checkpoint from before. {cure}.")
        return DivergedError(
            f"training diverged: {found}. The checkpoint {newest} is from before, and is kept: dorylus predict "
            f"{self._folder.path} reads it, and dorylus resume goes on from it, with the same lr. {cure}."
        )

    def _is_sound(self, path: Path) -> bool:
        """Whether a forward pass with a checkpoint's weights is finite; True where that cannot be found out."""
        if checkpoint.epoch_of(path) <= max(self._sound, self.epoch - 1):
            return True
        try:
            saved = checkpoint.load(path).weights
            weights = {name: saved[name] for name, _ in self.program.named_parameters()}
            evaluate(self.graph, self._running().outputs(weights=weights))
        except DivergedError:
            return False
        except DorylusError:
            return True
        return True

    def _leave_nothing(self) -> None:
        """A run that could not even begin leaves no folder: it would be in the way of the next attempt."""
        if self._folder is not None and self._is_new and self.epoch == 0:
            self._fleet.close()
            self._charge_nothing()
            self._folder.discard()
            self.close()
            self._remove_made()

    def _interrupted(self, interrupt: Interrupt) -> None:
        """Let intervals in flight finish what they began, save, and raise what the signal stands for."""
        while self.epoch <= self._permitted and self._progress.stopped is None:
            self._one_epoch(self._permitted + 1, interrupt)
        if self._progress.stopped is None:
            self._stop("interrupted")
        self._save()
        if interrupt.ending:
            raise Terminated(interrupt.signal)
        raise KeyboardInterrupt

    def _save_what_is_done(self) -> None:
        """Save a run whose epoch was given up; where intervals ran ahead, its last checkpoint is all there is."""
        is_exact = self.config.mode != "async" or self._progress.exact
        self._stop("interrupted")
        if self.epoch and (is_exact or self.epoch > self._permitted):
            self._save()

    def result(self) -> Result:
        """The run's result so far, its scores from an exact forward pass with the weights it holds."""
        try:
            return self._elastically(self._result)
        except (PoolFault, DeadlineError, ServersLostError) as fault:
            raise self._given_up(fault) from fault
        except DivergedError as found:
            raise self._diverged(found) from found

    def _result(self) -> Result:
        cluster = self._running()
        weights = self._best or cluster.state().weights
        metrics = evaluate(self.graph, cluster.outputs(weights=weights))
        model = deepcopy(self.program)
        model.load_state_dict({**model.state_dict(), **weights})
        self._fleet.settle()
        self._accounts.enter(Phase.EVALUATION)
        result = Result.of(
            self._progress,
            bill=self._accounts.bill(),
            pool=dict(self._fleet.figures()),
            model=model,
            metrics=metrics,
            peak_memory_bytes=process_memory.peak_bytes(),
            server_peak_memory_bytes=self._fleet.peaks(),
            work=self._fleet.assembly.work,
            config=self.config,
            graph=self.graph,
        )
        self.log.write("result", **result.summary(), run_dir=self.config.run_dir)
        if self._folder is not None:
            self._folder.write_metrics(result.summary())
            self._folder.write_used(self._accounts.to_dict())
        return result

    def close(self) -> None:
        """Stop the threads, end the log, and let go of the run folder."""
        self._closed = True
        with self._holds, closing(self.log), closing(self._fleet):
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> Cluster:
        """The cluster, started when it is first needed."""
        if self._closed:
            raise TrainingError(
                "the trainer is closed: go on with Trainer.resume, or make the result before closing it."
            )
        ears = RunListeners(
            self._note_cluster, self._note_pool, self._accounts.invoked, self._setting_up, self._invocation_begins
        )
        cluster = self._fleet.running(self.epoch, ears)
        self._setting_up.finished()
        return cluster

    def _invocation_begins(self) -> None:
        """A service bills it whatever becomes of this process: it is written down before."""
        if self._ledger is not None:
            with suppress(OSError, DorylusError):  # the next checkpoint reports it
                self._ledger.write()

    def _note_cluster(self, what: str, **details: Any) -> None:
        if what == "session":
            self._accounts.run_on(len({host for its in details["servers"].values() for host, _ in its}))
        self.log.write("cluster", what=what, **details)

    def _note_pool(self, what: str, **details: Any) -> None:
        if what == "program":
            self._accounts.exported(details["seconds"])
        self.log.write("pool", what=what, **details)

    def _elastically(self, work: Callable[[], T]) -> T:
        return self._fleet.elastically(work, lambda: self.epoch, self.log.write)

    def _one_epoch(self, until: int, interrupt: Interrupt) -> None:
        recent = self._progress.epoch_seconds[-RECENT_EPOCHS:]
        interrupt.expected_s = time.monotonic() + statistics.median(recent) if recent else None
        self._elastically(lambda: self._train(until))
        if not interrupt.ending:  # else the run is saved at once, and evaluated when it goes on
            self._elastically(self._look_at_epoch)

    def _train(self, until: int) -> None:
        if self._folder is not None:
            self._lock.keep()
        may_begin = last_startable_epoch(self.config, self.epoch, until, exact=self._progress.exact)
        self._permitted = max(self._permitted, may_begin)
        cluster = self._running()
        self._accounts.enter(Phase.TRAINING)
        try:
            report = cluster.train_epoch(self._permitted, exact=self._progress.exact)
        except DivergedError:
            self._sound = self.epoch  # the step is what failed: there was a loss from the weights before it
            raise
        self._accounts.enter(Phase.EVALUATION)
        if not math.isfinite(report.loss):
            check_finite(self.graph)
            raise DivergedError(f"the loss of epoch {self.epoch + 1} is {report.loss}")
        self._note(report)

    def _look_at_epoch(self) -> None:
        """What is due after the epoch that was trained: an evaluation, a checkpoint."""
        if self._progress.unevaluated:
            self._evaluate()
            self._progress.unevaluated = False
        elif self._accounts.must_learn_closing:
            with self._accounts.evaluation():
                self._running().outputs()
        last = self.epoch == self.config.epochs or self._progress.stopped is not None
        if last or (self.config.checkpoint_every and self.epoch % self.config.checkpoint_every == 0):
            self._save()

    def _note(self, report: EpochReport) -> None:
        self._progress.add(report)
        self._progress.unevaluated = self.config.eval_every > 0 and self.epoch % self.config.eval_every == 0
        self.log.write("epoch", **epoch_record(report, self.epoch, self._accounts.end_epoch()))
        if self._ledger is not None:
            self._ledger.write()
        if self.epoch <= self.config.trace_epochs:
            self.log.write("spans", epoch=self.epoch, spans=report.rows())

    def _evaluate(self) -> None:
        cluster, config = self._running(), self.config
        held = config.keep == "best" or config.mode == "async"  # one version, whatever arrives meanwhile
        weights = cluster.state().weights if held else None
        with self._accounts.evaluation():
            scores = evaluate(self.graph, cluster.outputs(weights=weights))
        self._sound = self.epoch
        self.log.write("evaluation", epoch=self.epoch, **scores)
        score = score_of(scores, self.graph.multilabel)
        if score is None:
            return
        verdict = judge(self._progress, score, self.epoch, config)
        if verdict.best and config.keep == "best":
            self._best = weights
            if self._folder is not None:
                CheckpointStore(self._folder).save_best(self._state(weights))
        if verdict.near_target and not self._progress.exact:
            self._progress.exact = True
            self.log.write("synchronous", epoch=self.epoch, score=score)
        if verdict.stop is not None:
            self._stop(verdict.stop)
            self._best = self._best or weights  # those that were looked at, not what arrived since

    def _stop(self, reason: str) -> None:
        self._progress.stopped = reason
        self.log.write("stop", reason=reason, epoch=self.epoch)

    def _state(self, weights: dict[str, Tensor] | None = None) -> Checkpoint:
        state = self._running().state()
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
        if self._folder is None:
            return
        ends_with = self._best if self.config.keep == "last" else None  # what a run stopped by its score ends with
        path = CheckpointStore(self._folder).save(self._state(ends_with))
        self._folder.write_used(self._progress.used)
        self.log.write("checkpoint", epoch=self.epoch, path=str(path))

    def _check_budget(self) -> None:
        """Refuse to go on with a run that its budget leaves no epoch for."""
        if newest(used for used in (self._used_before, self._progress.used) if used) is not self._used_before:
            self._used_before = dict(self._progress.used)  # of a run that had no ledger
            self._accounts.go_on_from(self._used_before)
        self._accounts.expect_epochs(self.epoch)
        if self._progress.stopped is None and self.epoch < self.config.epochs and not self._accounts.allow_epoch():
            self._charge_nothing()
            raise ConfigError(self._accounts.why_not())


@lists_settings
def train(
    graph: Graph,
    model: Model,
    *,
    optimizer: str | OptimizerFactory | None = None,
    lr_schedule: str | ScheduleFactory | None = None,
    pool: str | TensorPool | PoolHandle | None = None,
    sinks: Iterable[Sink] = (),
    spec: RunSpec | None = None,
    **settings: Unpack[RunSettings],
) -> Result:
    """Train a model on the whole graph. Settings are those of :class:`RunConfig`; see also :class:`Trainer`."""
    with (
        terminable(settings.get("grace_s", GRACE_S)),
        Trainer(
            graph,
            model,
            optimizer=optimizer,
            lr_schedule=lr_schedule,
            pool=pool,
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
    sinks: Iterable[Sink] = (),
    **settings: Unpack[ResumeSettings],
) -> Result:
    """Go on with a run that was stopped, to the same result as if it had not been."""
    with (
        terminable(settings.get("grace_s", GRACE_S)),
        Trainer.resume(
            Path(run_dir), graph, model, optimizer=optimizer, lr_schedule=lr_schedule, sinks=sinks, **settings
        ) as trainer,
    ):
        return trainer.run().result()
