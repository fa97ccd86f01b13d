import pytest

from dorylus.errors import ConfigError
from dorylus.functions.deploy.config import FunctionConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "my function"}, "letters, digits"),
        ({"name": "x" * 41}, "1 to 40"),
        ({"memory_mb": 100}, "128 to 10240"),
        ({"timeout_s": 901}, "1 to 900"),
        ({"concurrency": 0}, "at least one"),
        ({"subnets": ("subnet-1",)}, "give both, or neither"),
        ({"security_groups": ("sg-1",)}, "give both, or neither"),
    ],
)
def test_settings_that_the_service_would_refuse_are_refused_early(settings, message):
    with pytest.raises(ConfigError, match=message):
        FunctionConfig(**settings)


def test_a_function_gets_one_core_by_default():
    assert FunctionConfig().memory_mb == 1769
