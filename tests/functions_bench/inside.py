"""What goes wrong inside a function: the real handler, but for a runner and connections that can kill it.

This file goes into sabotaged functions: what a function has, and nothing else.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.functions.direct_path import Link, Links, connect
from dorylus.functions.handler import Handler
from dorylus.functions.runner import Runner
from dorylus.wire.frames import Buffer, Frame, FrameError, WireError, pack, unpack
from functions_bench.misdeeds import Misdeed, Note

FOREVER_S = 3600.0  # somebody ends it before
ACKNOWLEDGED_S = 5.0
Arrays = Mapping[str, NDArray[Any]]


class Fate:
    """What becomes of the task under way: each step of it is told here, and may be late, wrong, or the last."""

    def __init__(self) -> None:
        self._note: Note | None = None
        self._parts_left = 0
        self._pushed: list[tuple[Link, int]] = []

    def begin(self, note: Note | None, num_parts: int) -> None:
        """A task begins, of so many parts."""
        self._note, self._parts_left = note, min(num_parts, 2)
        self._pushed.clear()

    def computed(self) -> None:
        """A part is computed. Who dies in the middle dies with the second, if there is one: the first is pushed."""
        self._parts_left -= 1
        if self._is(Misdeed.CRAWL) and self._parts_left == 0:
            time.sleep(self._note.seconds if self._note else 0.0)
        if self._is(Misdeed.DIE_MID_TASK) and self._parts_left == 0:
            die()

    def pushed(self, link: Link, request: int) -> None:
        """Rows are under way to their port."""
        self._pushed.append((link, request))

    def acknowledged(self, link: Link, request: int) -> None:
        """Rows, or something else, have arrived."""
        self._pushed = [each for each in self._pushed if each != (link, request)]

    def is_about_to_push_sums(self) -> None:
        """All rows are pushed. Who dies now has brought them all, and no gradient."""
        if self._is(Misdeed.DIE_BETWEEN):
            with suppress(WireError):  # another attempt was first: the same end
                for link, request in self._pushed:
                    link.receive(request, ACKNOWLEDGED_S)
            die()

    def as_brought(self, arrays: Arrays) -> Arrays:
        """Arrays as they are pushed, or answered: those of garbage lack their last column."""
        if not self._is(Misdeed.GARBAGE):
            return arrays
        return {name: np.ascontiguousarray(array[..., :-1]) if array.ndim else array for name, array in arrays.items()}

    def ended(self) -> None:
        """The task is done, but nobody knows yet: there were no sums to push, or no ports."""
        if self._is(Misdeed.DIE_MID_TASK) or self._is(Misdeed.DIE_BETWEEN):
            die()

    def _is(self, deed: Misdeed) -> bool:
        return self._note is not None and self._note.deed is deed


class FatedRunner(Runner):
    """Computes as ever, and then may die."""

    def __init__(self, fate: Fate) -> None:
        super().__init__()
        self._fate = fate

    def run(self, program_hash: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
        made = super().run(program_hash, arrays)
        self._fate.computed()
        return made


class FatedLink:
    """A real connection to a data port, which may be the last thing that is used."""

    def __init__(self, inner: Link, fate: Fate) -> None:
        self._inner, self._fate = inner, fate

    def send(self, header: Mapping[str, Any], arrays: Arrays, timeout_s: float) -> int:
        takes = header.get("ask") == "take"
        if takes and "part" not in header:
            self._fate.is_about_to_push_sums()
        request = self._inner.send(header, self._fate.as_brought(arrays), timeout_s)
        if takes and "part" in header:
            self._fate.pushed(self._inner, request)
        return request

    def receive(self, request: int, timeout_s: float) -> Frame:
        frame = self._inner.receive(request, timeout_s)
        self._fate.acknowledged(self._inner, request)
        return frame

    def close(self) -> None:
        self._inner.close()


class SabotagedHandler(Handler):
    """The handler, which does wrong what a note in an invocation's header says; one invocation at a time."""

    def __init__(self) -> None:
        self._fate = fate = Fate()
        super().__init__(FatedRunner(fate), Links(lambda address, keys: FatedLink(connect(address, keys), fate)))

    def answer(self, request: Buffer) -> list[Buffer]:
        header = _header(request)
        note = Note.found_in(header)
        if note is not None:
            if note.deed is Misdeed.FAIL:
                raise RuntimeError("a function error, as asked for")
            if note.deed is Misdeed.HANG:
                time.sleep(FOREVER_S)
            if note.deed is Misdeed.GARBAGE and note.form % NUM_GARBAGE:
                return garbage(note.form % NUM_GARBAGE, request)
            if note.deed is Misdeed.CRAWL and note.form % 2:
                time.sleep(note.seconds)
                note = None
        return self._answer(request, header, note)

    def _answer(self, request: Buffer, header: Mapping[str, Any], note: Note | None) -> list[Buffer]:
        num_parts = -(-header["rows"] // header["part_rows"]) if "part_rows" in header else 1
        self._fate.begin(note, num_parts)
        frame = unpack(b"".join(super().answer(request)))
        if "missing" not in frame.header:  # else the task is still to come
            self._fate.ended()
        return pack(frame.header, self._fate.as_brought(frame.arrays))


NUM_GARBAGE = 6


def garbage(form: int, request: Buffer) -> list[Buffer]:
    """An answer that is none; in form 0, which is not made here, the task is carried out and all outputs are wrong."""
    other = pack({"task": "another"}, {"output.0": np.zeros((3, 2), np.float32)})
    forms: dict[int, list[Buffer]] = {
        1: [b"<html>"],
        2: [b"".join(other)[:40]],
        3: other,
        4: pack({}, {}),  # as if all were pushed
        5: [bytes(request)],
    }
    return forms[form]


def die() -> None:
    """End this process, as a crash would."""
    os._exit(1)


def _header(frame: Buffer) -> dict[str, Any]:
    try:
        return unpack(frame).header
    except FrameError:
        return {}
