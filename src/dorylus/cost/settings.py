"""The settings of cost: the prices of the bill, and the budget."""

from dataclasses import dataclass

from dorylus.settings import MOST_USD, SettingGroup, Settings, file, optional, real, setting, text


@dataclass(frozen=True, kw_only=True)
class CostSettings(Settings):
    """What a run is priced by, and what it may cost."""

    instance: str | None = setting(
        None,
        "Instance type the bill is priced for; the nearest to this machine when not given.",
        optional(text),
        recut=True,
        group=SettingGroup.MONEY,
    )
    price_book: str | None = setting(
        None, "TOML file of prices of your own, put over ours.", optional(file), recut=True, group=SettingGroup.MONEY
    )
    budget_usd: float | None = setting(
        None,
        "Stop, with a checkpoint, before the bill passes this many dollars.",
        optional(real(0, MOST_USD, above=True, usual=5)),
        recut=True,
        group=SettingGroup.MONEY,
    )
