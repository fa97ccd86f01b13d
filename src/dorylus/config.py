"""Every setting of a run that is plain data, with its default, its help text and the values it may take.

``RunConfig`` is the only list of settings: keyword arguments of ``dorylus.train``, flags of ``dorylus train`` and the
``[training]`` section of ``run.toml`` all derive from its fields. Nothing here needs torch.
"""

# ruff: noqa: RUF009  (setting and choice give dataclasses.field, made anew for each class)

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from dorylus.errors import ConfigError, unknown_name
from dorylus.pools import POOLS
from dorylus.settings import (
    LARGEST,
    MANY,
    MOST_USD,
    YEARS_S,
    amount,
    choice,
    decay,
    file,
    flag,
    folder,
    optional,
    options,
    real,
    setting,
    text,
    whole,
)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The settings of one run, checked: a bad value is refused with the cure, never clamped."""

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
    cluster: str = choice(
        "local", ("local", "ray"), "Where servers live: in this process, or as actors of a Ray cluster."
    )
    address: str | None = setting(
        None, "ray: the cluster's address; the one this machine belongs to when not given.", optional(text)
    )
    revive_s: float = setting(
        300.0,
        "ray: how long lost servers are waited for, in seconds: a cloud needs minutes.",
        real(0, YEARS_S, above=True, usual=300),
    )
    elastic: bool = setting(False, "ray: go on with fewer servers when lost ones do not come back in time.", flag)
    servers: int = setting(1, "Graph servers the graph is cut over.", whole(1, 4096))
    parameter_servers: int = setting(1, "Parameter servers that hold the weights.", whole(1, 4096))
    partition: str = setting(
        "stream", "How vertices go to servers: stream, metis, range, hash, or a folder of saved shards.", text
    )
    intervals: int | None = setting(
        None,
        "Intervals each server's vertices are cut into; chosen from the work when not given.",
        optional(whole(1, MANY)),
    )
    mode: str = choice(
        "pipe",
        ("pipe", "no_pipe", "async"),
        "pipe and no_pipe are exact, with and without overlap; async reads values up to staleness + 1 epochs old.",
    )
    staleness: int = setting(0, "async: how many epochs an interval may be ahead of the slowest one.", whole(0, 1_000))
    weight_update: str = choice(
        "sync", ("sync", "async"), "sync: one step an epoch, from all intervals; async: one as each interval arrives."
    )
    sync_margin: float | None = setting(
        None,
        "async: go on synchronously once validation accuracy is this close to target_accuracy.",
        optional(real(0, 1, usual=0.02)),
    )
    ghost_precision: str = choice(
        "float32", ("float32", "bf16"), "Number format in which rows travel between servers; bf16 is an approximation."
    )
    pool: str = choice(
        "threads",
        POOLS,
        "Where dense tasks run: threads or processes of this machine, any node of a Ray cluster, or functions.",
    )
    functions: int | None = setting(
        None, "Functions at work at once; found while they run when not given.", optional(whole(1, 100_000))
    )
    function_url: str | None = setting(None, "http: the address of the functions.", optional(text))
    function_name: str = setting("dorylus", "lambda: the name of the function deployed.", text)
    function_service: str | None = setting(
        None, "Row of the price book that functions are billed by; that of the pool when not given.", optional(text)
    )
    function_memory_mb: int = setting(1769, "Memory of a function, for the bill.", whole(1, 1_000_000))
    data_path: str = choice(
        "auto",
        ("auto", "direct", "inline"),
        "How tensors get to functions: they dial our ports, or it travels in payloads; auto finds out.",
    )
    data_host: str = setting(
        "127.0.0.1",
        "direct: the address of this machine that functions dial; the default is reached by functions of this machine "
        "only.",
        text,
    )
    data_port: int = setting(
        0,
        "direct: the first of the two ports that functions dial, for a firewall to let through; 0 takes any.",
        whole(0, 65_534),
    )
    payload_precision: str = choice(
        "float32",
        ("float32", "bf16", "int8"),
        "Number format of rows on their way to functions; less than float32 is an approximation.",
    )
    stream: bool = setting(True, "direct: functions start on the first rows while the next are under way.", flag)
    fuse: bool = setting(True, "The last ApplyVertex, the loss and its gradient are one call of a function.", flag)
    threads: int | None = setting(None, "Engine threads; all cores when not given.", optional(whole(1, 4096)))
    precision: str = choice("float32", ("float32", "bf16"), "Number format of activations; bf16 is an approximation.")
    reorder: str = choice("none", ("none", "degree", "bfs", "rcm"), "Order vertices are stored in; results keep yours.")
    rematerialize: bool | None = setting(
        None,
        "Recompute activations in the backward pass rather than keep them, same result; functions do unless told not "
        "to, threads only when told to.",
        optional(flag),
    )
    memory: str | None = setting(
        None,
        "Memory the run may take, like 8GiB: what does not fit lives in files and comes in as it is worked on.",
        optional(amount),
    )
    scratch_dir: str | None = setting(
        None,
        "memory: folder for those files; beside the graph's store, or in run_dir, when not given.",
        optional(folder),
    )
    cache_first_gather: bool = setting(True, "Gather the input features once and keep the result.", flag)
    narrow_gather: bool = setting(True, "Gather at the narrower of a layer's two widths.", flag)
    prune_rows: bool = setting(True, "Compute only rows that reach a labelled vertex.", flag)
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
    instance: str | None = setting(
        None, "Instance type the bill is priced for; the nearest to this machine when not given.", optional(text)
    )
    price_book: str | None = setting(None, "TOML file of prices of your own, put over ours.", optional(file))
    budget_usd: float | None = setting(
        None,
        "Stop, with a checkpoint, before the bill passes this many dollars.",
        optional(real(0, MOST_USD, above=True, usual=5)),
    )
    trace_epochs: int = setting(3, "First epochs whose every task is written to the run log.", whole(0, MANY))
    deadline_s: float = setting(
        600.0, "Longest wait for one task, in seconds.", real(0, YEARS_S, above=True, usual=600)
    )
    grace_s: float = setting(
        20.0,
        "How long SIGTERM and SIGHUP leave to finish or drop the epoch, save and end, in seconds.",
        real(0, YEARS_S, above=True, usual=20),
    )
    run_dir: str | None = setting(
        None, "Folder for settings, run log, checkpoints and metrics; none is written when not given.", optional(folder)
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            checked = each.metadata["check"](each.name, getattr(self, each.name))
            object.__setattr__(self, each.name, checked)
        self._check_together()

    def _check_together(self) -> None:
        self._check_asynchrony()
        self._check_functions()
        self._check_memory()
        if self.eval_every == 0:
            for name, asked in (("patience", self.patience), ("target_accuracy", self.target_accuracy)):
                if asked is not None:
                    raise ConfigError(
                        f"{name}={asked} with eval_every=0: {name} looks at the evaluations during training, and there "
                        "are none. Use eval_every=1 or more."
                    )
            if self.keep == "best":
                raise ConfigError(
                    "keep='best' with eval_every=0: the best weights are chosen among the evaluations during training, "
                    "and there are none. Use eval_every=1 or more, or keep='last'."
                )
        if self.lr_schedule_options and self.lr_schedule is None:
            raise ConfigError("lr_schedule_options are given without lr_schedule: name the schedule they are for.")

    def _check_memory(self) -> None:
        if self.memory is None:
            if self.scratch_dir is not None:
                raise ConfigError("scratch_dir without memory, so that nothing goes there: give memory too.")
            return
        needed: dict[str, Any] = {"servers": 1, "cluster": "local", "reorder": "none"}
        for name, value in needed.items():
            if getattr(self, name) != value:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} with memory={self.memory!r}: a limit is kept by one server in "
                    f"this process, over the graph as it is stored. Use {name}={value!r}, or leave memory out."
                )
        if self.mode == "async":
            raise ConfigError(
                f"mode='async' with memory={self.memory!r}: values of several epochs would have to be kept. Use "
                "mode='pipe', or leave memory out."
            )

    def _check_functions(self) -> None:
        for name in ("functions", "function_url") if not POOLS[self.pool].has_functions else ():
            value = getattr(self, name)
            if value is not None:
                raise ConfigError(
                    f"{name}={value!r} with pool={self.pool!r}, which has no functions: name the pool they are of."
                )

    def _check_asynchrony(self) -> None:
        if self.mode != "async":
            inexact = self.weight_update == "async"
            asked: dict[str, Any] = {"staleness": self.staleness, "sync_margin": self.sync_margin}
            asked |= {"weight_update": "async"} if inexact else {}
            for name, value in asked.items():
                if value not in (None, 0):
                    raise ConfigError(
                        f"{name}={value!r} with mode={self.mode!r}, which is exact: leave {name} out, or use "
                        "mode='async'."
                    )
        elif self.sync_margin is not None and self.target_accuracy is None:
            raise ConfigError(
                f"sync_margin={self.sync_margin:g} without target_accuracy: the margin is the distance to that target, "
                "so give both."
            )

    @classmethod
    def names(cls) -> list[str]:
        """The names of all settings, in order."""
        return [each.name for each in fields(cls)]

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """The settings given, defaults for the others; an unknown name is refused with the nearest known one."""
        known = cls.names()
        for name in settings:
            if name not in known:
                raise ConfigError(unknown_name("setting", name, known))
        return cls(**settings)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote down, checked again."""
        return cls.of(**settings)

    def to_dict(self) -> dict[str, Any]:
        """Every setting as plain JSON data; None stands for "not given" and is left out where a format lacks it."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: dict(value) if isinstance(value, dict) else value for name, value in plain.items()}


# What may differ when a run is resumed: how the work is cut, where it runs and what it may cost; not what it computes.
RECUT = (
    "cluster", "address", "revive_s", "elastic",
    "servers", "parameter_servers", "partition", "intervals", "threads", "pool", "deadline_s",
    "functions", "function_url", "function_name", "function_service", "function_memory_mb",
    "data_path", "data_host", "data_port", "stream", "fuse",
    "memory", "scratch_dir", "grace_s", "instance", "price_book", "budget_usd",
)  # fmt: skip


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
    pool = POOLS.get(str(settings.get("pool")))
    if pool is not None and not pool.has_functions:  # the settings of its functions no longer apply
        chosen_anew |= {"functions": None, "function_url": None}
    return RunConfig.of(**{**config.to_dict(), **chosen_anew, **settings})
