"""Every setting of a run that is plain data, with its default, its help text and the values it may take.

``RunConfig`` is the only list of settings: keyword arguments of ``dorylus.train``, flags of ``dorylus train`` and the
``[training]`` section of ``run.toml`` all derive from its fields. Each package declares and checks its own settings in
its module ``settings``. Those of training are here: run folders store them, and they lie below training. A rule about
settings of several packages is checked here, too. Nothing here loads torch.
"""

# ruff: noqa: RUF009  (setting and choice return dataclasses.field, made anew for each class)

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dorylus.cost import CostSettings
from dorylus.errors import ConfigError, unknown_name
from dorylus.memory import MemorySettings
from dorylus.pools import FunctionSettings
from dorylus.runtime import ClusterSettings
from dorylus.settings import (
    LARGEST,
    MANY,
    YEARS_S,
    Settings,
    choice,
    decay,
    folder,
    optional,
    options,
    real,
    setting,
    text,
    whole,
)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """Epochs, optimiser, evaluation, stopping, checkpoints."""

    epochs: int = setting(200, "Passes over the whole graph.", whole(1, MANY))
    lr: float = setting(0.01, "Learning rate.", real(0, LARGEST, above=True, usual=0.01))
    weight_decay: float | dict[str, float] = setting(
        0.0, "Weight decay; or PATTERN=DECAY for the parameters whose name matches, first match wins.", decay
    )
    optimizer: str = setting("adam", "Any optimiser of torch.optim, by name.", text)
    optimizer_options: dict[str, Any] = setting({}, "Further arguments of the optimiser.", options)
    lr_schedule: str | None = setting(
        None, "Any schedule of torch.optim.lr_scheduler, by name, stepped once an epoch.", optional(text)
    )
    lr_schedule_options: dict[str, Any] = setting({}, "Arguments of the schedule.", options)
    loss: str = choice(
        "auto", ("auto", "cross_entropy", "bce"), "Loss; auto takes bce for multi-label graphs, else cross_entropy."
    )
    seed: int = setting(0, "Seed of initial weights and dropout.", whole(0))
    eval_every: int = setting(10, "Epochs between evaluations; 0 evaluates only at the end.", whole(0, MANY))
    patience: int | None = setting(
        None, "Stop after this many evaluations without a better validation score.", optional(whole(1, MANY))
    )
    target_accuracy: float | None = setting(
        None,
        "Stop as soon as validation accuracy reaches this, as a fraction.",
        optional(real(0, 1, above=True, usual=0.8)),
    )
    keep: str = choice("last", ("last", "best"), "Which weights the result holds: last epoch's, or best on validation.")
    checkpoint_every: int = setting(
        10, "Epochs between checkpoints, for runs with a folder; 0 saves only at the end.", whole(0, MANY)
    )
    trace_epochs: int = setting(3, "First epochs whose every task is written to the run log.", whole(0, MANY))
    grace_s: float = setting(
        20.0,
        "How long SIGTERM and SIGHUP leave to finish or drop the epoch, save and end, in seconds.",
        real(0, YEARS_S, above=True, usual=20),
        recut=True,
    )

    def _check_together(self) -> None:
        super()._check_together()
        if self.eval_every == 0:
            for name, value in (("patience", self.patience), ("target_accuracy", self.target_accuracy)):
                if value is not None:
                    raise ConfigError(
                        f"{name}={value} with eval_every=0: {name} looks at the evaluations during training, and there "
                        "are none. Use eval_every=1 or more."
                    )
            if self.keep == "best":
                raise ConfigError(
                    "keep='best' with eval_every=0: the best weights are chosen among the evaluations during training, "
                    "and there are none. Use eval_every=1 or more, or keep='last'."
                )
        if self.lr_schedule_options and self.lr_schedule is None:
            raise ConfigError("lr_schedule_options are given without lr_schedule: name the schedule they are for.")


@dataclass(frozen=True, kw_only=True)
class RunConfig(CostSettings, MemorySettings, FunctionSettings, ClusterSettings, TrainingSettings):
    """The settings of one run, checked: a bad value is refused with the cure, never clamped."""

    run_dir: str | None = setting(
        None, "Folder for settings, run log, checkpoints and metrics; none is written when not given.", optional(folder)
    )

    def _check_together(self) -> None:
        super()._check_together()
        if self.sync_margin is not None and self.target_accuracy is None:
            raise ConfigError(
                f"sync_margin={self.sync_margin:g} without target_accuracy: the margin is the distance to that target, "
                "so give both."
            )
        for name, value in self.changes_for_limit.items() if self.memory is not None else ():
            why = "a limit is kept by one server in this process, over the graph as it is stored"
            if name == "mode":
                why = "values of several epochs would have to be kept"
            raise ConfigError(
                f"{name}={getattr(self, name)!r} with memory={self.memory!r}: {why}. Use {name}={value!r}, or leave "
                "memory out."
            )

    @property
    def changes_for_limit(self) -> dict[str, Any]:
        """The settings that would have to change for a memory limit to be kept, and to what."""
        changes: dict[str, Any] = {"mode": "pipe"} if self.mode == "async" else {}
        due: dict[str, Any] = {"reorder": "none", "servers": 1, "cluster": "local"}
        return changes | {name: value for name, value in due.items() if getattr(self, name) != value}


# What may differ when a run is resumed: how its work is divided, where it runs, what it may cost; not what it computes.
RECUT = tuple(each.name for each in fields(RunConfig) if each.metadata["recut"])


def recut(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The settings of a run that goes on cut in another way."""
    for name in settings:
        if name in RunConfig.names() and name not in RECUT:
            raise ConfigError(
                f"{name} is part of what a run computes, so it cannot change when the run is resumed: what can is how "
                f"its work is cut and what it may cost, {', '.join(RECUT)}."
            )
        if name not in RECUT:
            raise ConfigError(unknown_name("setting", name, RECUT))
    chosen_anew: dict[str, Any] = {}
    if settings.get("servers", config.servers) != config.servers:
        chosen_anew["intervals"] = None
    if settings.get("pool") == "threads":  # goes on without functions, so what was said of them means nothing
        chosen_anew |= {"functions": None, "function_url": None}
    return RunConfig.of(**{**config.to_dict(), **chosen_anew, **settings})
