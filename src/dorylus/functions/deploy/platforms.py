"""Where a function runs: which processor, which Python, and who brings that Python.

AWS's own Python runtimes (``managed``) bring the interpreter and the runtime client. The stand-in on this machine uses
the interpreter that runs us, so there the zip brings AWS's runtime client and a ``bootstrap`` that starts both.
"""

import platform
import sys
from dataclasses import dataclass
from typing import Final

from dorylus.errors import ConfigError, unknown_name

ARCHITECTURES: Final = {"x86_64": "x86_64", "arm64": "aarch64"}  # as Lambda calls them: as wheels do
# Those on Amazon Linux 2023. Older ones have a C library (glibc 2.26) that ONNX Runtime's wheels cannot be loaded with.
PYTHONS: Final = ("3.12", "3.13", "3.14")
GLIBC: Final = (2, 34)  # of Amazon Linux 2023: wheels built for this one or an older one fit
PYTHON_HERE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


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
        """Whether compiled packages of this very Python can be used there."""
        return sys.platform == "linux" and self.python == PYTHON_HERE and self.architecture == architecture_here()


def architecture_here() -> str:
    """This machine's architecture, as Lambda calls it; x86_64 where it has none of Lambda's."""
    names = {wheels: name for name, wheels in ARCHITECTURES.items()} | {"arm64": "arm64", "AMD64": "x86_64"}
    return names.get(platform.machine(), "x86_64")


def on_aws(architecture: str | None = None, python: str | None = None) -> Platform:
    """One of AWS's managed runtimes: as much like this machine as there is, where nothing is asked for."""
    nearest = PYTHON_HERE if PYTHON_HERE in PYTHONS else PYTHONS[0]
    return Platform(architecture or architecture_here(), python or nearest)


def on_this_machine() -> Platform:
    """This interpreter on this machine."""
    return Platform(architecture_here(), PYTHON_HERE, managed=False)
