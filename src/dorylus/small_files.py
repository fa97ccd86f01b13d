"""Reading files that are small by their purpose: settings, manifests, results.

A file that is larger than its kind ever gets is refused before more than that is read: a damaged or a wrong file may
have any size.
"""

from os import PathLike
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 4 << 20  # of settings, results and prices, which have kilobytes
_PIECE_BYTES = 1 << 16


class FileTooLargeError(ValueError):
    """A file that is larger than any of its kind; the message names it."""


def read_small(path: str | PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """All of a file of at most so many bytes."""
    with open(path, "rb") as file:
        return read_at_most(file, most_bytes, Path(path).name)


def read_at_most(file: BinaryIO, most_bytes: int, name: str) -> bytes:
    """What is left of an open file; ``name`` is the file's in the message."""
    content = bytearray()
    while piece := file.read(_PIECE_BYTES):  # no room is taken for more than there is
        content += piece
        if len(content) > most_bytes:
            raise FileTooLargeError(f"{name} has more than {most_bytes:,} bytes, the most of a file of its kind")
    return bytes(content)
