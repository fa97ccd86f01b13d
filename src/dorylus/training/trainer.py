"""The trainer: epochs, evaluations, checkpoints, and when to stop."""

import math
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from dorylus.cluster import LocalCluster
from dorylus.errors import CheckpointError, ConfigError, TrainingError
from dorylus.graph import Graph
from dorylus.observe import JsonlSink, RunLog, Sink, last_time
from dorylus.pools import make_pool
from dorylus.saga import Program, Recipe
from dorylus.servers import ParameterServer
from dorylus.training import checkpoint, memory
from dorylus.training.assembly import assemble, bind, check_finite, check_trainable, threads_of
from dorylus.training.config import RunConfig
from dorylus.training.evaluation import evaluate, score_of
from dorylus.training.fingerprint import fingerprint, graph_identity
from dorylus.training.interrupt import Interrupt
from dorylus.training.optim import (
    OptimizerFactory,
    ScheduleFactory,
    make_lr_schedule,
    make_optimizer,
    step_lr_schedule,
)
from dorylus.training.progress import Progress
from dorylus.training.result import Result
from dorylus.training.run_folder import RunFolder, RunSpec

Model = Recipe | Program


class Trainer:
    """One run, epoch by epoch. :func:`train` is this from beginning to end."""

    def __init__(
        self,
        graph: Graph,
        model: Model,
        *,
        optimizer: str | OptimizerFactory | None = None,
        lr_schedule: str | ScheduleFactory | None = None,
        sinks: Iterable[Sink] = (),
        spec: RunSpec | None = None,
        **settings: Any,
    ) -> None:
        named = {"optimizer": optimizer, "lr_schedule": lr_schedule}
        settings |= {name: given for name, given in named.items() if isinstance(given, str)}
        config = RunConfig.of(**settings)
        optimizer_factory = None if isinstance(optimizer, str) else optimizer
        schedule_factory = None if isinstance(lr_schedule, str) else lr_schedule
        self._set_up(graph, model, config, optimizer_factory, schedule_factory)
        self._folder = None if config.run_dir is None else RunFolder.create(config.run_dir, spec, self.config)
        self._progress.graph = "" if self._folder is None else graph_identity(graph)
        self._start_log(sinks, resumed_from=None)

    @classmethod
    def resume(
        cls,
        run_dir: str | PathLike[str],
        graph: Graph | None = None,
        model: Model | None = None,
        *,
        optimizer: OptimizerFactory | None = None,
        lr_schedule: ScheduleFactory | None = None,
        sinks: Iterable[Sink] = (),
    ) -> Self:
        """A run that was stopped, ready to go on from its last checkpoint (or from the beginning, if it has none).

        Graph and model are made again from the run folder unless they are given.
        """
        folder = RunFolder.open(run_dir)
        trainer = cls.__new__(cls)
        graph = folder.spec.load_graph(download=False) if graph is None else graph
        model = folder.spec.build_model() if model is None else model
        trainer._set_up(graph, model, folder.config, optimizer, lr_schedule)
        trainer._folder = folder
        resumed_from = None
        trainer._progress.graph = graph_identity(graph)
        if checkpoint.latest(folder.checkpoints) is not None:
            state = checkpoint.load(folder.checkpoints, fingerprint(trainer._weights(), trainer.program.describe()))
            trainer._restore(state)
            resumed_from = state.epoch
        trainer._start_log(sinks, resumed_from)
        return trainer

    def _set_up(
        self,
        graph: Graph,
        model: Model,
        config: RunConfig,
        optimizer: OptimizerFactory | None,
        lr_schedule: ScheduleFactory | None,
    ) -> None:
        """Everything that can be refused is refused here, before anything is written or computed."""
        memory.reset_peak()
        check_trainable(graph, config)
        self.program = bind(model, graph, config.seed)
        if not any(True for _ in self.program.parameters()):
            raise ConfigError("the model has no weights, so there is nothing to train: give it a layer that has some.")
        self._name = model.name if isinstance(model, Recipe) else "program"
        made = make_optimizer(config, self.program.named_parameters(), optimizer)
        self._schedule = make_lr_schedule(config, made, lr_schedule)
        self._parameters = ParameterServer(self.program, made)
        self._optimizer = made
        self._assembly = assemble(graph, self.program, config)
        # Every setting as it came out: the bits of a run depend on its intervals, so a resumed run must cut the same.
        intervals = self._assembly.shard.layout.num_intervals
        self.graph, self.config = graph, replace(config, intervals=intervals, threads=threads_of(config))
        self._progress = Progress()
        self._best: dict[str, Tensor] | None = None
        self._cluster: LocalCluster | None = None

    def _start_log(self, sinks: Iterable[Sink], resumed_from: int | None) -> None:
        to_file, started_s = [], 0.0
        if self._folder is not None:
            if resumed_from is not None:
                started_s = last_time(self._folder.log)
            to_file = [JsonlSink(self._folder.log, append=resumed_from is not None)]
        self.log = RunLog([*to_file, *sinks], started_s=started_s)
        graph = self.graph
        self.log.write(
            "run",
            config=self.config.to_dict(),
            graph={
                "name": graph.name,
                "vertices": graph.num_vertices,
                "edges": graph.num_edges,
                "features": graph.num_features,
                "classes": graph.num_classes,
                "multilabel": graph.multilabel,
            },
            model={"name": self._name, "parameters": sum(p.numel() for p in self.program.parameters())},
            resumed_from=resumed_from,
            run_dir=None if self._folder is None else str(self._folder.path),
        )

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self._progress.losses)

    def run(self, epochs: int | None = None) -> Self:
        """Train until the settings say stop, or for so many epochs more."""
        until = self.config.epochs if epochs is None else min(self.config.epochs, self.epoch + epochs)
        with Interrupt() as interrupt:
            while self.epoch < until and self._progress.stopped is None:
                self._one_epoch()
                if interrupt.asked:
                    if self._progress.stopped is None:
                        self._stop("interrupted")
                    self._save()
                    raise KeyboardInterrupt
        if self.epoch >= self.config.epochs and self._progress.stopped is None:
            self._stop("epochs")
        return self

    def result(self) -> Result:
        """The run's result so far, its scores from an exact forward pass with the weights it holds."""
        last = self._parameters.weights()
        if self._best is not None:
            self._parameters.load(self._best)
        metrics = evaluate(self.graph, self._running().logits())
        model = deepcopy(self.program)
        self._parameters.load(last)  # a result may be asked for in the middle of a run
        progress = self._progress
        result = Result(
            model=model,
            losses=list(progress.losses),
            epoch_seconds=list(progress.epoch_seconds),
            metrics=metrics,
            peak_memory_bytes=memory.peak_bytes(),
            work=self._assembly.work,
            stopped=progress.stopped or "not yet",
            config=self.config,
            graph=self.graph,
        )
        self.log.write("result", **result.summary(), run_dir=self.config.run_dir)
        if self._folder is not None:
            self._folder.write_metrics(result.summary())
        return result

    def close(self) -> None:
        """Stop the threads and end the log."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> LocalCluster:
        """The cluster, started when it is first needed."""
        if self._cluster is None:
            parts, config = self._assembly, self.config
            self._cluster = LocalCluster(
                parts.shard,
                self._parameters,
                make_pool(config.pool),
                parts.evaluation,
                mode=config.mode,
                threads=threads_of(config),
                deadline_s=config.deadline_s,
                bf16=config.precision == "bf16",
            )
            self._cluster.prepare_training(
                parts.training,
                parts.targets,
                seed=config.seed,
                keep_graph=not config.rematerialize,
                first_epoch=self.epoch,
            )
        return self._cluster

    def _one_epoch(self) -> None:
        report = self._running().train_epoch()
        if not math.isfinite(report.loss):
            check_finite(self.graph)
            raise TrainingError(
                f"the loss of epoch {self.epoch + 1} is {report.loss}: training diverged. Use a smaller lr, or "
                "row-normalised features; the last checkpoint, where there is one, is from before."
            )
        self._progress.losses.append(report.loss)
        self._progress.epoch_seconds.append(report.seconds)
        step_lr_schedule(self._schedule, report.loss)
        self.log.write(
            "epoch",
            epoch=self.epoch,
            loss=report.loss,
            seconds=report.seconds,
            memory_bytes=memory.resident_bytes(),
            tasks=report.seconds_by_kind(),
        )
        if self.epoch <= self.config.trace_epochs:
            self.log.write("spans", epoch=self.epoch, spans=report.rows())
        if self.config.eval_every and self.epoch % self.config.eval_every == 0:
            self._evaluate()
        last = self.epoch == self.config.epochs or self._progress.stopped is not None
        if last or (self.config.checkpoint_every and self.epoch % self.config.checkpoint_every == 0):
            self._save()

    def _evaluate(self) -> None:
        scores = evaluate(self.graph, self._running().logits())
        self.log.write("evaluation", epoch=self.epoch, **scores)
        score = score_of(scores, self.graph.multilabel)
        if score is None:
            return
        if self._progress.note(score, self.epoch) and self.config.keep == "best":
            self._best = self._parameters.weights()
            if self._folder is not None:
                checkpoint.save(self._folder.best, self._state())
        if self.config.patience is not None and self._progress.stale >= self.config.patience:
            self._stop("patience")
        if self.config.target_accuracy is not None and score >= self.config.target_accuracy:
            self._stop("target_accuracy")

    def _stop(self, reason: str) -> None:
        self._progress.stopped = reason
        self.log.write("stop", reason=reason, epoch=self.epoch)

    def _state(self) -> checkpoint.Checkpoint:
        return checkpoint.Checkpoint(
            epoch=self.epoch,
            weights=self._weights(),
            optimizer=self._optimizer.state_dict(),
            lr_schedule=None if self._schedule is None else self._schedule.state_dict(),
            progress=self._progress.to_dict(),
            spec=self.program.describe(),
        )

    def _save(self) -> None:
        if self._folder is None:
            return
        path = checkpoint.save(self._folder.checkpoints, self._state())
        checkpoint.prune(self._folder.checkpoints, keep=2)
        # A best model goes only when no checkpoint names it any more: a crash now must find the one it needs.
        oldest = checkpoint.oldest(self._folder.checkpoints) or path
        checkpoint.prune_before(self._folder.best, checkpoint.epoch_of(oldest))
        self.log.write("checkpoint", epoch=self.epoch, path=str(path))

    def _weights(self) -> dict[str, Tensor]:
        return {name: weight.detach() for name, weight in self.program.state_dict().items()}

    def _restore(self, state: checkpoint.Checkpoint) -> None:
        given = self._progress.graph
        self._progress = Progress.from_dict(state.progress)
        if self._progress.graph != given:
            raise CheckpointError(
                f"the run was started on another graph ({self._progress.graph}; this one: {given}). Give it the graph "
                "it was started on, or train this one into another run_dir."
            )
        if self._progress.stopped == "interrupted":
            self._progress.stopped = None
        self.program.load_state_dict(state.weights)
        self._parameters.load(self._weights_of(state.weights), state.epoch)
        self._optimizer.load_state_dict(state.optimizer)
        if self._schedule is not None and state.lr_schedule is not None:
            self._schedule.load_state_dict(state.lr_schedule)
        if self.config.keep == "best" and self._progress.best_epoch is not None:
            self._best = self._load_best()

    def _load_best(self) -> dict[str, Tensor]:
        assert self._folder is not None
        assert self._progress.best_epoch is not None
        saved = checkpoint.load(checkpoint.at_epoch(self._folder.best, self._progress.best_epoch))
        return self._weights_of(saved.weights)

    def _weights_of(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Those of a state that are trained; the rest are buffers."""
        return {name: state[name] for name, _ in self.program.named_parameters()}


def train(graph: Graph, model: Model, **settings: Any) -> Result:
    """Train a model on the whole graph. Settings are those of :class:`RunConfig`; see also :class:`Trainer`."""
    with Trainer(graph, model, **settings) as trainer:
        return trainer.run().result()


def resume(run_dir: str | PathLike[str], graph: Graph | None = None, model: Model | None = None, **more: Any) -> Result:
    """Go on with a run that was stopped, to the same result as if it had not been."""
    with Trainer.resume(Path(run_dir), graph, model, **more) as trainer:
        return trainer.run().result()
