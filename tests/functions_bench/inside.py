"""Faults inside a function: the real handler, with a runner and connections that can kill its process.

This file is part of sabotaged functions: it imports only what a function has.
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
from functions_bench.injected_faults import InjectedFault, Note

FOREVER_S = 3600.0  # the test kills the process before
ACKNOWLEDGED_S = 5.0
Arrays = Mapping[str, NDArray[Any]]


class FaultInjector:
    """Injects the fault of the task under way: each step is reported here, and may be late, wrong, or the last."""

    def __init__(self) -> None:
        self._note: Note | None = None
        self._parts_left = 0
        self._pushed: list[tuple[Link, int]] = []

    def begin(self, note: Note | None, num_parts: int) -> None:
        """A task begins, in ``num_parts`` parts."""
        self._note, self._parts_left = note, min(num_parts, 2)
        self._pushed.clear()

    def computed(self) -> None:
        """A part is computed. Death in the middle comes with the second part, if any: the first is pushed then."""
        self._parts_left -= 1
        if self._is(InjectedFault.CRAWL) and self._parts_left == 0:
            time.sleep(self._note.seconds if self._note else 0.0)
        if self._is(InjectedFault.DIE_MID_TASK) and self._parts_left == 0:
            die()

    def pushed(self, link: Link, request: int) -> None:
        """Rows are under way to their port."""
        self._pushed.append((link, request))

    def acknowledged(self, link: Link, request: int) -> None:
        """Rows, or something else, have arrived."""
        self._pushed = [each for each in self._pushed if each != (link, request)]

    def is_about_to_push_sums(self) -> None:
        """All rows are pushed. A function that dies now has delivered all rows, and no gradient."""
        if self._is(InjectedFault.DIE_BETWEEN):
            with suppress(WireError):  # another attempt was first: the same end
                for link, request in self._pushed:
                    link.receive(request, ACKNOWLEDGED_S)
            die()

    def corrupted(self, arrays: Arrays) -> Arrays:
        """Arrays as they are pushed or answered; garbage lacks the last column."""
        if not self._is(InjectedFault.GARBAGE):
            return arrays
        return {name: np.ascontiguousarray(array[..., :-1]) if array.ndim else array for name, array in arrays.items()}

    def ended(self) -> None:
        """The task is done, but not reported: there were no sums to push, or no ports."""
        if self._is(InjectedFault.DIE_MID_TASK) or self._is(InjectedFault.DIE_BETWEEN):
            die()

    def _is(self, fault: InjectedFault) -> bool:
        return self._note is not None and self._note.fault is fault


class FaultyRunner(Runner):
    """Computes, and then may die."""

    def __init__(self, injector: FaultInjector) -> None:
        super().__init__()
        self._injector = injector

    def run(self, program_hash: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
        made = super().run(program_hash, arrays)
        self._injector.computed()
        return made


class FaultyLink:
    """A real connection to a data port, at which the process may die."""

    def __init__(self, inner: Link, injector: FaultInjector) -> None:
        self._inner, self._injector = inner, injector

    def send(self, header: Mapping[str, Any], arrays: Arrays, timeout_s: float) -> int:
        takes = header.get("ask") == "take"
        if takes and "part" not in header:
            self._injector.is_about_to_push_sums()
        request = self._inner.send(header, self._injector.corrupted(arrays), timeout_s)
        if takes and "part" in header:
            self._injector.pushed(self._inner, request)
        return request

    def receive(self, request: int, timeout_s: float) -> Frame:
        frame = self._inner.receive(request, timeout_s)
        self._injector.acknowledged(self._inner, request)
        return frame

    def close(self) -> None:
        self._inner.close()


class SabotagedHandler(Handler):
    """The handler, with the fault that an invocation's header names; one invocation at a time."""

    def __init__(self) -> None:
        self._injector = injector = FaultInjector()
        links = Links(lambda address, keys: FaultyLink(connect(address, keys), injector))
        super().__init__(FaultyRunner(injector), links)

    def answer(self, request: Buffer) -> list[Buffer]:
        header = _header(request)
        note = Note.found_in(header)
        if note is not None:
            if note.fault is InjectedFault.FAIL:
                raise RuntimeError("a function error, as requested")
            if note.fault is InjectedFault.HANG:
                time.sleep(FOREVER_S)
            if note.fault is InjectedFault.GARBAGE and note.form % NUM_GARBAGE:
                return garbage(note.form % NUM_GARBAGE, request)
            if note.fault is InjectedFault.CRAWL and note.form % 2:
                time.sleep(note.seconds)
                note = None
        return self._answer(request, header, note)

    def _answer(self, request: Buffer, header: Mapping[str, Any], note: Note | None) -> list[Buffer]:
        num_parts = -(-header["rows"] // header["part_rows"]) if "part_rows" in header else 1
        self._injector.begin(note, num_parts)
        frame = unpack(b"".join(super().answer(request)))
        if "missing" not in frame.header:  # else the task is still to come
            self._injector.ended()
        return pack(frame.header, self._injector.corrupted(frame.arrays))


NUM_GARBAGE = 6


def garbage(form: int, request: Buffer) -> list[Buffer]:
    """An invalid answer. In form 0, which is not made here, the task is executed and all outputs are wrong."""
    other = pack({"task": "another"}, {"output.0": np.zeros((3, 2), np.float32)})
    forms: dict[int, list[Buffer]] = {
        1: [b"<html>"],
        2: [b"".join(other)[:40]],
        3: other,
        4: pack({}, {}),  # as if all rows were pushed
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
