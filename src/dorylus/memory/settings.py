"""The settings of memory: in which form rows are held, which are held at all, and how much memory they may take."""

from dataclasses import dataclass

from dorylus.errors import ConfigError, given
from dorylus.settings import SettingGroup, Settings, amount, choice, flag, folder, optional, setting


@dataclass(frozen=True, kw_only=True)
class MemorySettings(Settings):
    """The form of rows, the memory limit, and the exact savings."""

    precision: str = choice(
        "float32",
        ("float32", "bf16"),
        "Number format of activations; bf16 is an approximation.",
        group=SettingGroup.EXACTNESS,
    )
    reorder: str = choice(
        "none",
        ("none", "degree", "bfs", "rcm"),
        "Order vertices are stored in; results keep yours.",
        group=SettingGroup.PLACE,
    )
    memory: str | None = setting(
        None,
        "Memory the run may take, like 8GiB: what does not fit is kept in files and read when it is needed.",
        optional(amount),
        recut=True,
        group=SettingGroup.MEMORY,
    )
    scratch_dir: str | None = setting(
        None,
        "memory: folder for those files; beside the graph's store, or in run_dir, when not given.",
        optional(folder),
        recut=True,
        group=SettingGroup.MEMORY,
    )
    cache_first_gather: bool = setting(
        True, "Gather the input features once and keep the result.", flag, group=SettingGroup.MEMORY
    )
    narrow_gather: bool = setting(
        True, "Gather at the narrower of a layer's two widths.", flag, group=SettingGroup.MEMORY
    )
    prune_rows: bool = setting(True, "Compute only rows that reach a labelled vertex.", flag, group=SettingGroup.MEMORY)

    def _check_together(self) -> None:
        super()._check_together()
        if self.memory is None and self.scratch_dir is not None:
            raise ConfigError(
                f"{given('scratch_dir')} without {given('memory')}, so that nothing goes there: give {given('memory')} "
                "too."
            )
