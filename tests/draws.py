"""How many examples a property draws: few in every run of the tests, ten times as many in `make soak`."""

from typing import Any

from hypothesis import settings

SOAK = "soak"  # the profile of `make soak`


def draws(count: int, **more: Any) -> settings:
    """Settings for so many examples, none of them timed."""
    in_soak = settings.get_current_profile_name() == SOAK
    return settings(max_examples=10 * count if in_soak else count, deadline=None, **more)
