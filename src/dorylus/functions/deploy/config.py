"""What a deployed function is to be."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dorylus.errors import ConfigError
from dorylus.functions.deploy.platforms import Platform, on_aws

DEFAULT_NAME = "dorylus"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, kw_only=True)
class FunctionConfig:
    """Settings of a function on AWS Lambda, or on its stand-in.

    - ``memory_mb``: Lambda gives processor time with it; 1,769 MB are one core, and a task uses one.
    - ``timeout_s``: after this the service ends an invocation.
    - ``concurrency``: how many may run at once, reserved for this function; None leaves that to the account.
    - ``subnets`` and ``security_groups``: inside which network it runs; both or neither. Inside, it can dial servers'
      private addresses (the direct data path).
    - ``role``: the ARN of a role that is there already; None makes one.
    - ``tags``: put on everything that is made, beside our own.
    """

    name: str = DEFAULT_NAME
    platform: Platform = field(default_factory=on_aws)
    memory_mb: int = 1769
    timeout_s: int = 120
    concurrency: int | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    role: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"name={self.name!r}: use 1 to 40 letters, digits, '-' and '_'.")
        for setting, low, high in (("memory_mb", 128, 10240), ("timeout_s", 1, 900)):
            if not low <= getattr(self, setting) <= high:
                raise ConfigError(f"{setting}={getattr(self, setting)}: AWS Lambda takes {low} to {high}.")
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigError(f"concurrency={self.concurrency}: at least one function must be able to run.")
        if bool(self.subnets) != bool(self.security_groups):
            raise ConfigError("a function inside a network needs subnets and security groups: give both, or neither.")
