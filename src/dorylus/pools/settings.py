"""The settings of pools: where dense tasks run, and how rows travel to functions."""

from dataclasses import dataclass

from dorylus.errors import ConfigError, given
from dorylus.functions import PRECISIONS
from dorylus.pools.registry import POOLS, pool_spec
from dorylus.settings import SettingGroup, Settings, choice, flag, optional, setting, text, whole

DATA_PATHS = ("auto", "direct", "inline")


@dataclass(frozen=True, kw_only=True)
class FunctionSettings(Settings):
    """The pool of a run and its functions."""

    pool: str = setting(
        "threads",
        "Where dense tasks run: threads or processes of this machine, any node of a Ray cluster, or functions.",
        lambda _, name: pool_spec(name).name,  # type: ignore[arg-type]
        choices=POOLS,
        recut=True,
        group=SettingGroup.PLACE,
    )
    functions: int | None = setting(
        None,
        "Functions that work at the same time; tuned while they run when not given.",
        optional(whole(1, 100_000)),
        recut=True,
        group=SettingGroup.FUNCTIONS,
    )
    function_url: str | None = setting(
        None, "http: the address of the functions.", optional(text), recut=True, group=SettingGroup.FUNCTIONS
    )
    function_name: str = setting(
        "dorylus", "lambda: the name of the function deployed.", text, recut=True, group=SettingGroup.FUNCTIONS
    )
    function_service: str | None = setting(
        None,
        "Row of the price book that functions are billed by; that of the pool when not given.",
        optional(text),
        recut=True,
        group=SettingGroup.FUNCTIONS,
    )
    function_memory_mb: int = setting(
        1769, "Memory of a function, for the bill.", whole(1, 1_000_000), recut=True, group=SettingGroup.FUNCTIONS
    )
    data_path: str = choice(
        "auto",
        DATA_PATHS,
        "How tensors reach functions: over ports of ours, or in payloads; auto finds out.",
        recut=True,
        group=SettingGroup.FUNCTIONS,
    )
    data_host: str = setting(
        "127.0.0.1",
        "direct: the address of this machine that functions dial; the default is reached by functions of this machine "
        "only.",
        text,
        recut=True,
        group=SettingGroup.FUNCTIONS,
    )
    data_port: int = setting(
        0,
        "direct: the first of the two ports that functions dial, for a firewall to let through; 0 takes any.",
        whole(0, 65_534),
        recut=True,
        group=SettingGroup.FUNCTIONS,
    )
    payload_precision: str = choice(
        "float32",
        PRECISIONS,
        "Number format in which rows travel to functions; any but float32 is an approximation.",
        group=SettingGroup.EXACTNESS,
    )
    stream: bool = setting(
        True,
        "direct: functions start on the first rows while the next are under way.",
        flag,
        recut=True,
        group=SettingGroup.FUNCTIONS,
    )
    fuse: bool = setting(
        True,
        "The last ApplyVertex, the loss and its gradient are one call of a function.",
        flag,
        recut=True,
        group=SettingGroup.FUNCTIONS,
    )
    rematerialize: bool | None = setting(
        None,
        "Recompute activations in the backward pass rather than keep them, same result; by default functions do, and "
        "threads do not.",
        optional(flag),
        group=SettingGroup.MEMORY,
    )

    def _check_together(self) -> None:
        super()._check_together()
        for name in ("functions", "function_url") if not pool_spec(self.pool).has_functions else ():
            value = getattr(self, name)
            if value is not None:
                raise ConfigError(
                    f"{given(name, value)} with {given('pool', self.pool)}, which has no functions: name the pool they "
                    "are of."
                )
