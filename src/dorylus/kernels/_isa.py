"""Which instruction set the kernels run on."""

from dorylus.errors import unknown_name
from dorylus.kernels import _native


def isa() -> str:
    """The instruction set in use: "avx512", "avx2", "neon" or "baseline"."""
    return _native.isa()


def available_isas() -> list[str]:
    """The instruction sets this processor can run, best first."""
    return _native.available()


def use_isa(name: str) -> None:
    """Switches every kernel of this process to another instruction set; for tests and measurements."""
    if not _native.choose(name):
        raise ValueError(unknown_name("instruction set", name, available_isas()))
