"""Data ports that answer in this process: no socket, but the same frames, in and out of bytes."""

import numpy as np
from small_programs import numbers

from dorylus.functions.direct_path import Links
from dorylus.functions.invocation import CONTENT
from dorylus.wire.frames import Frame, Refused, WireError, pack, unpack


class FakePorts:
    """Holds one task's rows, weights and program; keeps what is pushed and records requests in order."""

    def __init__(self, program, rows, weights, part_rows):
        self.program, self.rows, self.weights, self.part_rows = program, rows, weights, part_rows
        self.requests, self.pushed, self.sums, self.dialled = [], {}, None, []
        self.over = self.gone = False

    def links(self):
        return Links(self.connect)

    def connect(self, address, keys):
        self.dialled.append(address)
        return FakeLink(self, address)

    def answer(self, address, frame):
        ask = frame.header["ask"]
        if self.over:
            raise Refused("the task is over")
        if ask == "rows":
            begin = frame.header["part"] * self.part_rows
            return Frame({}, {name: array[begin : begin + self.part_rows] for name, array in self.rows.items()})
        if ask == "weights":
            return Frame({}, {name: self.weights[name] for name in frame.header["names"]})
        if ask == "program":
            return Frame({}, {CONTENT: np.frombuffer(self.program.content, np.uint8)})
        if ask == "take" and address == "rows":
            self.pushed[frame.header["part"]] = {name: array.copy() for name, array in frame.arrays.items()}
        elif ask == "take":
            self.sums = {name: array.copy() for name, array in frame.arrays.items()}
        return Frame({"taken": True}, {})


class FakeLink:
    """One end of a connection; an answer is made when it is received."""

    def __init__(self, ports, address):
        self._ports, self._address, self._waiting, self._next = ports, address, {}, 0
        self.closed = False

    def send(self, header, arrays, timeout_s):
        self._next += 1
        what = header["ask"] + str(header.get("part", ""))
        self._ports.requests.append(what)
        self._waiting[self._next] = (what, unpack(b"".join(pack(header, arrays))))
        return self._next

    def receive(self, request, timeout_s):
        if self._ports.gone:
            raise WireError("no answer")
        what, frame = self._waiting.pop(request)
        self._ports.requests.append(f"got {what}")
        answered = self._ports.answer(self._address, frame)
        return unpack(b"".join(pack(answered.header, answered.arrays)))

    def close(self):
        self.closed = True


def weights():
    """The weights of the small programs."""
    return {"weight.w": numbers(9, 3, 2)}
