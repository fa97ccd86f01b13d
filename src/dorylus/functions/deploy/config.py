"""The settings of a deployed function, and its platform: processor architecture and Python."""

import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dorylus.errors import ConfigError, DorylusError, unknown_name

ARCHITECTURES: Final = {"x86_64": "x86_64", "arm64": "aarch64"}  # as Lambda calls them: as wheels do
# Those on Amazon Linux 2023. Older ones have a C library (glibc 2.26) that ONNX Runtime's wheels cannot be loaded with.
PYTHONS: Final = ("3.12", "3.13", "3.14")
GLIBC: Final = (2, 34)  # of Amazon Linux 2023: wheels built for this one or an older one fit
PYTHON_HERE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
DEFAULT_NAME = "dorylus"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True)
class Platform:
    """A processor architecture, a version of Python, and whether the service brings that Python."""

    architecture: str
    python: str
    managed: bool = True

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ConfigError(unknown_name("architecture", self.architecture, ARCHITECTURES))
        if self.managed and self.python not in PYTHONS:
            raise ConfigError(
                f"python={self.python}: ONNX Runtime runs on AWS's runtimes for Python {', '.join(PYTHONS)}. Use one "
                "of these, whichever Python you train with."
            )

    def __str__(self) -> str:
        return f"Python {self.python} on {self.architecture}"

    @property
    def runtime(self) -> str:
        """What Lambda calls the runtime."""
        return f"python{self.python}" if self.managed else "provided.al2023"

    @property
    def fits_here(self) -> bool:
        """Whether compiled packages of this Python can be used on the platform."""
        return sys.platform == "linux" and self.python == PYTHON_HERE and self.architecture == architecture_here()


def architecture_here() -> str:
    """This machine's architecture by Lambda's name; x86_64 where Lambda has no such architecture."""
    names = {wheels: name for name, wheels in ARCHITECTURES.items()} | {"arm64": "arm64", "AMD64": "x86_64"}
    return names.get(platform.machine(), "x86_64")


def on_aws(architecture: str | None = None, python: str | None = None) -> Platform:
    """One of AWS's managed runtimes, by default the one most like this machine."""
    nearest = PYTHON_HERE if PYTHON_HERE in PYTHONS else PYTHONS[0]
    return Platform(architecture or architecture_here(), python or nearest)


def on_this_machine() -> Platform:
    """This interpreter on this machine."""
    return Platform(architecture_here(), PYTHON_HERE, managed=False)


@dataclass(frozen=True, kw_only=True)
class FunctionConfig:
    """Settings of a function on AWS Lambda, or on its stand-in.

    - ``memory_mb``: Lambda allots processor time in proportion to it; 1,769 MB are one core, and a task uses one.
    - ``timeout_s``: after this the service ends an invocation.
    - ``concurrency``: how many may run at the same time, reserved for this function; None reserves nothing.
    - ``subnets`` and ``security_groups``: the network it runs in; both or neither. In a network it can connect to
      servers' private addresses (the direct data path).
    - ``role``: the ARN of an existing role; None makes one.
    - ``tags``: put on everything that is made, in addition to Dorylus's own.
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


class DeployError(DorylusError):
    """A function that could not be packed, deployed, looked at or destroyed."""

    exit_code = 1
