"""How patient a pool is with whatever runs its calls: every number behind time-outs, relaunches and giving up."""

from dataclasses import dataclass, fields

from dorylus.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What :class:`Relaunching` goes by. See docs/pools.md for what each number does.

    ``attempts``: how often a call may be tried; throttled and refused launches do not count.
    ``first_s``, ``at_least_s``, ``at_most_s``: the time-out before anything is known, and its bounds afterwards.
    ``deviations``: by how many mean deviations a time-out lies above the mean.
    ``backoff_s``, ``backoff_at_most_s``: the longest pause after a call's first loss, doubled by each further one.
    ``down_after_s``: how long failures may come, and no success, before the service counts as down.
    ``refused_after_s``: the same for a service that has never answered and says itself that it is not there for us.
    """

    attempts: int = 10
    first_s: float = 30.0
    at_least_s: float = 1.0
    at_most_s: float = 120.0
    deviations: float = 4.0
    backoff_s: float = 0.2
    backoff_at_most_s: float = 10.0
    down_after_s: float = 120.0
    refused_after_s: float = 5.0

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self)):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)}: a policy's numbers are above 0 and finite.")
        for low, high in (
            ("at_least_s", "at_most_s"),
            ("first_s", "down_after_s"),  # or a service that is down could not be told from a slow one in that time
            ("at_most_s", "down_after_s"),
            ("refused_after_s", "down_after_s"),
            ("backoff_s", "backoff_at_most_s"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise ConfigError(
                    f"{low}={getattr(self, low):g} is longer than {high}={getattr(self, high):g}: lower the first, or "
                    "raise the second."
                )
