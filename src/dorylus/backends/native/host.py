"""The instruction set of the kernels; checksums of files; and the handler for mapped files that are cut short."""

import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from dorylus.backends.native import _native
from dorylus.errors import unknown_name


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


Buffer = bytes | memoryview | npt.NDArray[Any]


def crc32(data: Buffer, before: int = 0) -> int:
    """The CRC-32 of some bytes, as zlib has it, going on from that of those before them; about four times as fast."""
    return _native.crc32(data, before)


def crc32_blocks(data: Buffer, block_bytes: int) -> npt.NDArray[np.uint32]:
    """The CRC-32 of every block of so many bytes; the last one may be shorter."""
    return np.frombuffer(_native.crc32_blocks(data, block_bytes), np.uint32)


def watch_mapping(mapped: npt.NDArray[Any], nbytes: int, sentence: str) -> None:
    """Ends the process with exit code 1 and a sentence when an array is read beyond the end of its mapped file.

    That happens when another process cuts the file short. The kernel then sends SIGBUS, which by default ends a process
    without a message; the process cannot continue, as the data is gone.
    """
    number = _native.watch_mapping(mapped.ctypes.data, nbytes, sentence)
    weakref.finalize(mapped, _native.unwatch_mapping, number)
