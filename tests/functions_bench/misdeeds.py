"""Everything that an invocation may do wrong, and the note in its header that tells a function to do so.

This file goes into sabotaged functions: standard library and our frames only.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from dorylus.wire.frames import pack, unpack

NOTE: Final = "misdeed"  # the field of a header
NOTE_BYTES: Final = 256  # that it takes at most


class Misdeed(StrEnum):
    """One way for an invocation to go wrong."""

    FAIL = "fails"
    HANG = "hangs"
    CRAWL = "crawls"
    DIE_MID_TASK = "dies in the middle of its task"
    DIE_BETWEEN = "dies between pushing rows and pushing gradients"
    GARBAGE = "answers with garbage"
    TWICE = "is carried out twice"
    THROTTLED = "is throttled"


INSIDE: Final = tuple(each for each in Misdeed if each not in (Misdeed.TWICE, Misdeed.THROTTLED))


@dataclass(frozen=True)
class Note:
    """What a function is told to do wrong: the deed, how long it takes, and which of several forms it has."""

    deed: Misdeed
    seconds: float = 0.0
    form: int = 0

    def put_on(self, request: bytes) -> bytes:
        """The same request with this note in its header."""
        frame = unpack(request)
        return b"".join(pack({**frame.header, NOTE: asdict(self)}, frame.arrays))

    @classmethod
    def found_in(cls, header: Mapping[str, Any]) -> "Note | None":
        """The note in a header, if there is one."""
        note = header.get(NOTE)
        return None if note is None else cls(Misdeed(note["deed"]), note["seconds"], note["form"])
