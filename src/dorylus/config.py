"""Every setting of a run that is plain data, with its default, its help text and the values it may take.

``RunConfig`` is the only list of settings: keyword arguments of ``dorylus.train``, flags of ``dorylus train`` and the
``[training]`` section of ``run.toml`` all derive from its fields. Each package declares and checks its own settings in
its module ``settings``. Those of training are here: run folders store them, and they lie below training. A rule about
settings of several packages is checked here, too. Nothing here loads torch.
"""

# ruff: noqa: RUF009  (setting and choice return dataclasses.field, made anew for each class)

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from os import PathLike
from typing import Any, ClassVar, TypedDict, TypeVar, get_args, get_type_hints

from dorylus.cost import CostSettings
from dorylus.errors import ConfigError, given, unknown_name
from dorylus.memory import MemorySettings
from dorylus.pools import POOLS, FunctionSettings
from dorylus.runtime import ClusterSettings
from dorylus.settings import (
    LARGEST,
    MANY,
    YEARS_S,
    SettingGroup,
    Settings,
    choice,
    decay,
    folder,
    one_of,
    optional,
    options,
    real,
    setting,
    some_of,
    text,
    whole,
)

KEPT = ("last", "best")
LOGGERS = ("tensorboard", "mlflow", "wandb")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """Epochs, optimiser, evaluation, stopping, checkpoints."""

    epochs: int = setting(200, "Passes over the whole graph.", whole(1, MANY), group=SettingGroup.TRAINING)
    lr: float = setting(0.01, "Learning rate.", real(0, LARGEST, above=True, usual=0.01), group=SettingGroup.TRAINING)
    weight_decay: float | dict[str, float] = setting(
        0.0,
        "Weight decay; or PATTERN=DECAY for the parameters whose name matches, first match wins.",
        decay,
        group=SettingGroup.TRAINING,
    )
    optimizer: str = setting("adam", "Any optimiser of torch.optim, by name.", text, group=SettingGroup.TRAINING)
    optimizer_options: dict[str, Any] = setting(
        {}, "Further arguments of the optimiser.", options, group=SettingGroup.TRAINING
    )
    lr_schedule: str | None = setting(
        None,
        "Any schedule of torch.optim.lr_scheduler, by name, stepped once an epoch.",
        optional(text),
        group=SettingGroup.TRAINING,
    )
    lr_schedule_options: dict[str, Any] = setting(
        {}, "Arguments of the schedule.", options, group=SettingGroup.TRAINING
    )
    loss: str = choice(
        "auto",
        ("auto", "cross_entropy", "bce"),
        "Loss; auto takes bce for multi-label graphs, else cross_entropy.",
        group=SettingGroup.TRAINING,
    )
    seed: int = setting(0, "Seed of initial weights and dropout.", whole(0), group=SettingGroup.TRAINING)
    eval_every: int = setting(
        10, "Epochs between evaluations; 0 evaluates only at the end.", whole(0, MANY), group=SettingGroup.STOPPING
    )
    patience: int | None = setting(
        None,
        "Stop after this many evaluations without a better validation score.",
        optional(whole(1, MANY)),
        group=SettingGroup.STOPPING,
    )
    target_accuracy: float | None = setting(
        None,
        "Stop as soon as validation accuracy reaches this, as a fraction.",
        optional(real(0, 1, above=True, usual=0.8)),
        group=SettingGroup.STOPPING,
    )
    keep: str | None = setting(
        None,
        "Which weights the result holds: those of the last epoch, or of the best on validation; best with patience or "
        "target_accuracy when not given, else last.",
        optional(one_of(KEPT)),
        choices=KEPT,
        group=SettingGroup.STOPPING,
    )
    checkpoint_every: int = setting(
        10,
        "Epochs between checkpoints, for runs with a folder; 0 saves only at the end.",
        whole(0, MANY),
        group=SettingGroup.OUTPUT,
    )
    trace_epochs: int = setting(
        3,
        "First epochs of which every task is written to the run log; with 0, no later one either.",
        whole(0, MANY),
        group=SettingGroup.OUTPUT,
    )
    grace_s: float = setting(
        20.0,
        "How long SIGTERM and SIGHUP leave to finish or drop the epoch, save and end, in seconds.",
        real(0, YEARS_S, above=True, usual=20),
        recut=True,
        group=SettingGroup.STOPPING,
    )

    def _check_together(self) -> None:
        super()._check_together()
        if self.eval_every == 0:
            for name, value in (("patience", self.patience), ("target_accuracy", self.target_accuracy)):
                if value is not None:
                    raise ConfigError(
                        f"{given(name, value)} with {given('eval_every', 0)}: {given(name)} looks at the evaluations "
                        f"during training, and there are none. Use {given('eval_every', 1)} or more."
                    )
            if self.keep == "best":
                raise ConfigError(
                    f"{given('keep', 'best')} with {given('eval_every', 0)}: the best weights are chosen among the "
                    f"evaluations during training, and there are none. Use {given('eval_every', 1)} or more, or "
                    f"{given('keep', 'last')}."
                )
        if self.lr_schedule_options and self.lr_schedule is None:
            raise ConfigError(
                f"{given('lr_schedule_options')} are given without {given('lr_schedule')}: name the schedule they are "
                "for."
            )

    @property
    def kept(self) -> str:
        """``keep``, or what it is when it is not given: a run that validation stops keeps what is best there."""
        looks_at_validation = self.patience is not None or self.target_accuracy is not None
        return self.keep or ("best" if looks_at_validation else "last")


_NO_BATCHES = (
    "is no setting, because an epoch is one step over the whole graph, without batches or samples: leave it out, and "
    f"limit what a run holds by {given('memory', '8GiB')}."
)
_NO_DEVICE = (
    "is no setting, because a run uses the processor's cores: leave it out, or choose how many by "
    f"{given('threads', 2)}."
)
_OF_MODEL = "is an option of the model, not of the run: give it to the builder, as in dorylus.gcn(hidden=16)."
_OF_OPTIMIZER = (
    f"is an option of the optimiser: give it as {given('optimizer_options', {'momentum': 0.9})}, for instance."
)
_OF_SCHEDULE = (
    f"is an option of the schedule: give it as {given('lr_schedule_options', {'step_size': 50})}, for instance."
)
_MEANT = {
    "lr": "learning_rate base_lr eta alpha",
    "epochs": "epoch num_epochs n_epochs nb_epochs max_epochs max_epoch n_iter num_iterations iterations",
    "weight_decay": "wd l2 l2_reg decay",
    "optimizer": "optimiser optim opt",
    "lr_schedule": "scheduler lr_scheduler schedule",
    "loss": "criterion loss_fn loss_function objective",
    "seed": "random_state random_seed manual_seed rng",
    "patience": "early_stopping early_stop early_stopping_patience",
    "threads": "num_threads n_threads n_jobs num_workers workers cores cpus",
    "servers": "num_servers n_servers world_size num_parts num_nodes",
    "run_dir": "output_dir out_dir log_dir save_dir checkpoint_dir ckpt_dir",
    "eval_every": "eval_interval eval_steps validate_every val_every check_val_every_n_epoch",
    "checkpoint_every": "checkpoint_interval save_every save_steps ckpt_every",
    "intervals": "num_intervals chunks num_chunks",
    "memory": "memory_limit max_memory mem",
    "precision": "dtype amp",
    "budget_usd": "budget max_usd max_cost",
    _NO_BATCHES: "batch_size batch num_batches num_neighbors fanout fanouts shuffle drop_last sampler",
    _NO_DEVICE: "device devices gpu gpus cuda use_cuda accelerator",
    _OF_MODEL: "hidden hidden_channels hidden_dim num_layers n_layers heads dropout activation layer_norm batch_norm",
    _OF_OPTIMIZER: "momentum betas eps nesterov amsgrad dampening",
    _OF_SCHEDULE: "gamma step_size T_max milestones",
    "is called sinks here: give a list of objects with the methods write and close.": "callbacks loggers logger",
    "is called progress here: True, False, or None where a terminal or notebook decides.": "verbose progress_bar quiet",
}


@dataclass(frozen=True, kw_only=True)
class RunConfig(CostSettings, MemorySettings, FunctionSettings, ClusterSettings, TrainingSettings):
    """The settings of one run, checked: a bad value is refused with the cure, never clamped."""

    meant: ClassVar[Mapping[str, str]] = {name: ours for ours, names in _MEANT.items() for name in names.split()}

    run_dir: str | None = setting(
        None,
        "Folder for settings, run log, checkpoints and metrics; none is written when not given.",
        optional(folder),
        group=SettingGroup.OUTPUT,
    )
    log_to: tuple[str, ...] = setting(
        (),
        "Also log the run to tensorboard, mlflow or wandb; several with commas between.",
        some_of(LOGGERS),
        choices=LOGGERS,
        recut=True,
        group=SettingGroup.OUTPUT,
    )

    def _check_together(self) -> None:
        super()._check_together()
        if self.sync_margin is not None and self.target_accuracy is None:
            raise ConfigError(
                f"{given('sync_margin', self.sync_margin)} without {given('target_accuracy')}: the margin is the "
                "distance to that target, so give both."
            )
        for name, value in self.changes_for_limit.items() if self.memory is not None else ():
            why = "a memory limit needs one server in this process, and the graph in its stored order"
            if name == "mode":
                why = "values of several epochs would have to be kept"
            raise ConfigError(
                f"{given(name, getattr(self, name))} with {given('memory', self.memory)}: {why}. Use "
                f"{given(name, value)}, or leave {given('memory')} out."
            )

    @property
    def changes_for_limit(self) -> dict[str, Any]:
        """The settings that would have to change for a memory limit to be kept, and to what."""
        changes: dict[str, Any] = {"mode": "pipe"} if self.mode == "async" else {}
        due: dict[str, Any] = {"reorder": "none", "servers": 1, "cluster": "local"}
        return changes | {name: value for name, value in due.items() if getattr(self, name) != value}


class ChangeableSettings(TypedDict, total=False):
    """Keyword arguments of ``train`` that may change when a run is resumed."""

    grace_s: float
    cluster: str
    address: str | None
    revive_s: float
    elastic: bool
    servers: int
    parameter_servers: int
    partition: str
    intervals: int | None
    threads: int | None
    deadline_s: float
    functions: int | None
    function_url: str | None
    function_name: str
    function_service: str | None
    function_memory_mb: int
    data_path: str
    data_host: str
    data_port: int
    stream: bool
    fuse: bool
    memory: int | str | None
    scratch_dir: str | PathLike[str] | None
    instance: str | None
    price_book: str | PathLike[str] | None
    budget_usd: float | None
    log_to: str | list[str] | tuple[str, ...]


class ResumeSettings(ChangeableSettings, total=False):
    """Keyword arguments of ``resume``: those of ``train`` that do not change what a run computes."""

    pool: str


class RunSettings(ChangeableSettings, total=False):
    """Keyword arguments of ``train``, for type checkers and editors: the fields of :class:`RunConfig`.

    ``optimizer``, ``lr_schedule`` and ``pool`` are not among them: ``train`` takes them as objects, too.
    """

    epochs: int
    lr: float
    weight_decay: float | dict[str, float]
    optimizer_options: dict[str, Any]
    lr_schedule_options: dict[str, Any]
    loss: str
    seed: int
    eval_every: int
    patience: int | None
    target_accuracy: float | None
    keep: str | None
    checkpoint_every: int
    trace_epochs: int
    mode: str
    staleness: int
    weight_update: str
    sync_margin: float | None
    ghost_precision: str
    payload_precision: str
    rematerialize: bool | None
    precision: str
    reorder: str
    cache_first_gather: bool
    narrow_gather: bool
    prune_rows: bool
    run_dir: str | PathLike[str] | None


class AllSettings(RunSettings, total=False):
    """Keyword arguments for every field of :class:`RunConfig`, each as plain data."""

    optimizer: str
    lr_schedule: str | None
    pool: str


def _type_text(kind: Any) -> str:
    """A type as people write it: ``int``, ``float | dict[str, float]``."""
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return text.replace("typing.", "").replace("os.PathLike", "PathLike")


F = TypeVar("F", bound=Callable[..., Any])


def lists_settings(function: F) -> F:
    """Makes ``help()`` and editors list every setting of a function's ``**settings``, with type, default and a line.

    A run that is resumed keeps the settings it has: there, the default is ``...``.
    """
    signature = inspect.signature(function)
    (settings,) = (each for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD)
    (keywords,) = get_args(settings.annotation)
    types = get_type_hints(keywords)
    parameters = {name: each for name, each in signature.parameters.items() if each is not settings}
    for field in fields(RunConfig):
        default: Any = {} if field.default is MISSING else field.default
        default = ... if keywords is ResumeSettings else default
        if field.name in types:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters[field.name] = inspect.Parameter(field.name, kind, default=default, annotation=types[field.name])
        elif field.name in parameters and keywords is RunSettings:  # an object or a name: the default is a name
            parameters[field.name] = parameters[field.name].replace(default=default)
    lines = [
        f"    {each.name}: {_type_text(types.get(each.name, each.type))} = {parameters[each.name].default!r}\n"
        f"        {each.metadata['help']}"
        for each in fields(RunConfig)
        if each.name in parameters
    ]
    function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Settings:", "", *lines, ""])
    function.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
    return function


# What may differ when a run is resumed: how its work is divided, where it runs, what it may cost; not what it computes.
RECUT = tuple(each.name for each in fields(RunConfig) if each.metadata["recut"])


def recut(written: Mapping[str, Any], changes: Mapping[str, Any]) -> RunConfig:
    """The ``written`` settings of a run that is resumed with some of them changed, checked together."""
    for name in changes:
        if name in RunConfig.names() and name not in RECUT:
            raise ConfigError(
                f"{given(name)} is part of what a run computes, so it cannot change when the run is resumed: what can "
                f"is how its work is cut and what it may cost, {', '.join(map(given, RECUT))}."
            )
        if name not in RECUT:
            raise ConfigError(unknown_name("setting", name, RECUT, RunConfig.meant))
    chosen_anew: dict[str, Any] = {}
    servers = written.get("servers", RunConfig.servers)
    if changes.get("servers", servers) != servers:
        chosen_anew["intervals"] = None
    pool = changes.get("pool", "")
    if pool in tuple(POOLS) and not POOLS[pool].has_functions:  # it has no functions, so their settings do not apply
        chosen_anew |= {"functions": None, "function_url": None}
    return RunConfig.of(**{**written, **chosen_anew, **changes})
