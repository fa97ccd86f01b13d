"""The settings of servers: how many there are, where they run, and in which order their tasks run."""

from dataclasses import dataclass
from typing import Any

from dorylus.errors import ConfigError, given
from dorylus.pipeline import MODES
from dorylus.settings import MANY, YEARS_S, SettingGroup, Settings, choice, flag, optional, real, setting, text, whole


@dataclass(frozen=True, kw_only=True)
class ClusterSettings(Settings):
    """Servers, their work and their tasks' order."""

    cluster: str = choice(
        "local",
        ("local", "ray"),
        "Where servers run: in this process, or as actors of a Ray cluster.",
        recut=True,
        group=SettingGroup.PLACE,
    )
    address: str | None = setting(
        None,
        "ray: the cluster's address; the one this machine belongs to when not given.",
        optional(text),
        recut=True,
        group=SettingGroup.PLACE,
    )
    revive_s: float = setting(
        300.0,
        "ray: how long lost servers are waited for, in seconds: a cloud needs minutes.",
        real(0, YEARS_S, above=True, usual=300),
        recut=True,
        group=SettingGroup.PLACE,
    )
    elastic: bool = setting(
        False,
        "ray: continue with fewer servers when lost ones do not come back in time.",
        flag,
        recut=True,
        group=SettingGroup.PLACE,
    )
    servers: int = setting(
        1, "Graph servers the graph is cut over.", whole(1, 4096), recut=True, group=SettingGroup.PLACE
    )
    parameter_servers: int = setting(
        1, "Parameter servers that hold the weights.", whole(1, 4096), recut=True, group=SettingGroup.PLACE
    )
    partition: str = setting(
        "stream",
        "How vertices are assigned to servers: stream, metis, range, hash, or a folder of saved shards.",
        text,
        recut=True,
        group=SettingGroup.PLACE,
    )
    intervals: int | None = setting(
        None,
        "Intervals each server's vertices are cut into; chosen from the work when not given.",
        optional(whole(1, MANY)),
        recut=True,
        group=SettingGroup.PLACE,
    )
    mode: str = choice(
        "pipe",
        MODES,
        "pipe and no_pipe are exact, with and without overlap; async reads values up to staleness + 1 epochs old.",
        group=SettingGroup.EXACTNESS,
    )
    staleness: int = setting(
        0,
        "async: how many epochs an interval may be ahead of the slowest one.",
        whole(0, 1_000),
        group=SettingGroup.EXACTNESS,
    )
    weight_update: str = choice(
        "sync",
        ("sync", "async"),
        "sync: one step an epoch, from all intervals; async: one as each interval arrives.",
        group=SettingGroup.EXACTNESS,
    )
    sync_margin: float | None = setting(
        None,
        "async: continue synchronously once validation accuracy is this close to target_accuracy.",
        optional(real(0, 1, usual=0.02)),
        group=SettingGroup.EXACTNESS,
    )
    ghost_precision: str = choice(
        "float32",
        ("float32", "bf16"),
        "Number format in which rows travel between servers; bf16 is an approximation.",
        group=SettingGroup.EXACTNESS,
    )
    threads: int | None = setting(
        None,
        "Engine threads; all cores when not given.",
        optional(whole(1, 4096)),
        recut=True,
        group=SettingGroup.PLACE,
    )
    deadline_s: float = setting(
        600.0,
        "Longest wait for one task, in seconds.",
        real(0, YEARS_S, above=True, usual=600),
        recut=True,
        group=SettingGroup.PLACE,
    )

    def _check_together(self) -> None:
        super()._check_together()
        if self.mode == "async":
            return
        inexact: dict[str, Any] = {"staleness": self.staleness, "sync_margin": self.sync_margin}
        inexact |= {"weight_update": "async"} if self.weight_update == "async" else {}
        for name, value in inexact.items():
            if value not in (None, 0):
                raise ConfigError(
                    f"{given(name, value)} with {given('mode', self.mode)}, which is exact: leave {given(name)} out, "
                    f"or use {given('mode', 'async')}."
                )
