import pytest

from dorylus.errors import ConfigError
from dorylus.pools.pacing import Policy


def test_the_defaults_are_those_in_the_documentation():
    assert vars(Policy()) == {
        "attempts": 10, "first_s": 30.0, "at_least_s": 1.0, "at_most_s": 120.0, "deviations": 4.0, "backoff_s": 0.2,
        "backoff_at_most_s": 10.0, "down_after_s": 120.0, "refused_after_s": 5.0,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["attempts", "first_s", "backoff_s", "down_after_s"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_number_that_is_not_above_zero_and_finite_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name}={value}: a policy's numbers are above 0 and finite"):
        Policy(**{name: value})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"first_s": 200.0}, "first_s=200 is longer than down_after_s=120"),
        ({"at_most_s": 0.5}, "at_least_s=1 is longer than at_most_s=0.5"),
        ({"down_after_s": 60.0}, "at_most_s=120 is longer than down_after_s=60"),
        ({"refused_after_s": 121.0}, "refused_after_s=121 is longer than down_after_s=120"),
        ({"backoff_s": 20.0}, "backoff_s=20 is longer than backoff_at_most_s=10"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Policy(**settings)
