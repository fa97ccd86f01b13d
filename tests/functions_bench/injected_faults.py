"""The faults that are injected into invocations, and the header field that makes a function commit one.

This file goes into sabotaged functions: standard library and our frames only.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from dorylus.wire.frames import pack, unpack

NOTE: Final = "injected_fault"  # the field of a header
NOTE_BYTES: Final = 256  # the most that it takes


class InjectedFault(StrEnum):
    """One way in which an invocation fails."""

    FAIL = "fails"
    HANG = "hangs"
    CRAWL = "crawls"
    DIE_MID_TASK = "dies in the middle of its task"
    DIE_BETWEEN = "dies between pushing rows and pushing gradients"
    GARBAGE = "answers with garbage"
    TWICE = "is carried out twice"
    THROTTLED = "is throttled"


INSIDE: Final = tuple(each for each in InjectedFault if each not in (InjectedFault.TWICE, InjectedFault.THROTTLED))


@dataclass(frozen=True)
class Note:
    """The fault that a function commits: its kind, its duration, and which of several forms it has."""

    fault: InjectedFault
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
        return None if note is None else cls(InjectedFault(note["fault"]), note["seconds"], note["form"])
