"""A client of a data port: sends requests, and waits for the answers with a deadline.

Several requests may be in flight: ``send`` the next one, work on the last answer, then ``receive``. The socket's own
thread reads answers as they arrive. Only one thread at a time may use a client.
"""

import secrets
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from dorylus.wire.frames import (
    DEFAULT,
    Buffer,
    Frame,
    FrameError,
    FrameLimits,
    Refused,
    WireError,
    frame_bytes,
    pack,
    unpack,
)
from dorylus.wire.keys import ClientKeys
from dorylus.wire.pieces import Buffers, FrameAssembler, MessageKind, Piece, messages
from dorylus.wire.sockets import (
    DISCONNECTED,
    KEY_REFUSED,
    Poller,
    Unreachable,
    client_socket,
    connect,
    discard_rest,
    new_context,
    next_event,
    receive_answer_start,
    receive_piece,
    send_piece,
    watch,
)

MAX_IN_FLIGHT = 64  # requests whose answers the caller has not received; the oldest are dropped


class Client:
    """Connects to a port and keeps the connection; when it is lost, connects again.

    The arrays of an answer are views into a buffer that does not change while any of them is kept. The arrays of a
    request are sent without copying, after ``send`` returns: do not write to them before the answer has arrived.
    """

    def __init__(self, address: str, keys: ClientKeys, *, limits: FrameLimits = DEFAULT) -> None:
        self.address, self._limits = address, limits
        self._context = new_context()
        try:
            self._socket = client_socket(self._context, keys)
            self._events = watch(self._socket, KEY_REFUSED, DISCONNECTED)
            connect(self._socket, address)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._reading = Poller(self._socket, self._events)
        self._writing = Poller(self._events, write=self._socket)
        self._session, self._last = secrets.randbits(64), 0
        self._waiting: set[int] = set()
        self._answers: dict[int, Frame | WireError] = {}
        self._assembly: FrameAssembler | None = None
        self._buffers = Buffers()

    def __repr__(self) -> str:
        return f"Client({self.address})"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def request(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], timeout_s: float) -> Frame:
        """Send a request and wait for the answer."""
        until = time.monotonic() + timeout_s
        return self.receive(self.send(header, arrays, timeout_s), until - time.monotonic())

    def send(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], timeout_s: float = 10.0) -> int:
        """Send a request without waiting for the answer; returns its number, for :meth:`receive`."""
        parts = pack(header, arrays, self._limits)
        until = time.monotonic() + timeout_s
        self._wait_to_write(until, timeout_s)
        self._last += 1
        self._waiting.add(self._last)
        self._drop_request(self._last - MAX_IN_FLIGHT)
        try:
            self._send(parts, until, timeout_s)
        except BaseException:
            self._waiting.discard(self._last)
            raise
        return self._last

    def has_answer(self, request: int, timeout_s: float) -> bool:
        """Whether the answer to a request, or the reason that none will come, arrives within a time."""
        if request not in self._waiting and request not in self._answers:
            raise WireError(
                f"request {request} to {self.address} is not in flight: never sent, received already, or dropped."
            )
        until = time.monotonic() + timeout_s
        self._read()
        while request not in self._answers:
            if not self._reading.wait(_left_ms(until)) and time.monotonic() >= until:
                return False
            self._read()
        return True

    def receive(self, request: int, timeout_s: float) -> Frame:
        """The answer to a request. Raises :class:`Refused` with the port's reason if the port declines it."""
        if not self.has_answer(request, timeout_s):
            self._waiting.discard(request)
            raise WireError(f"{self.address} did not answer request {request} within {timeout_s:.3g} s.")
        answer = self._answers.pop(request)
        if isinstance(answer, WireError):
            raise answer
        return answer

    def close(self) -> None:
        """Close the connection and drop the requests in flight. Closing twice is fine."""
        self._context.destroy(linger=0)

    def _send(self, parts: list[Buffer], until: float, timeout_s: float) -> None:
        start = Piece(MessageKind.REQUEST, 0, self._session, self._last, frame_bytes(parts))
        for head, content in messages(start, parts):
            while True:
                try:
                    send_piece(self._socket, head, content)
                    break
                except Unreachable:
                    self._wait_to_write(until, timeout_s)
            if self._last not in self._waiting:
                raise self._lost()

    def _drop_request(self, request: int) -> None:
        """Drop a request: answers that the caller never receives must not accumulate."""
        self._waiting.discard(request)
        self._answers.pop(request, None)

    def _wait_to_write(self, until: float, timeout_s: float) -> None:
        while True:
            ready = self._writing.wait(_left_ms(until))
            events = self._handle_events()
            if self._socket in ready:
                return
            if KEY_REFUSED in events:
                raise WireError(f"{self.address} refused our key: it has expired, was revoked, or is of another run.")
            if time.monotonic() >= until:
                raise WireError(
                    f"{self.address} could not be reached within {timeout_s:.3g} s: no server listens there, there is "
                    "no route to it, or the server that listens is not the one our key belongs to."
                )

    def _handle_events(self) -> set[int]:
        """The events of the connection since the last call; if it is lost, so are the requests in flight."""
        events = set()
        while (event := next_event(self._events)) is not None:
            events.add(event)
        if DISCONNECTED in events:
            self._receive_all()
            for request in self._waiting:
                self._answers[request] = self._lost()
            self._waiting.clear()
            self._assembly = None
        return events

    def _lost(self) -> WireError:
        return WireError(
            f"the connection to {self.address} was lost before the answer arrived: send the request again."
        )

    def _read(self) -> None:
        self._receive_all()
        self._handle_events()

    def _receive_all(self) -> None:
        while (start := receive_answer_start(self._socket)) is not None:
            try:
                self._receive_piece(start)
            except FrameError:
                self._assembly = None  # the request that waits for the rest of it fails by its deadline
            finally:
                discard_rest(self._socket)

    def _receive_piece(self, start: Buffer) -> None:
        piece = Piece.from_bytes(start)
        if piece.session != self._session or piece.request not in self._waiting or piece.kind is MessageKind.REQUEST:
            return  # an answer that arrived too late
        try:
            self._limits.check_size(piece.total_bytes, f"an answer of {self.address}")
        except FrameError as why:
            self._settle(piece, why)
            return
        if piece.index == 0:
            self._assembly = FrameAssembler(piece, self._buffers.take(piece.total_bytes))
        if self._assembly is None or not self._assembly.expects(piece):
            raise FrameError(f"piece {piece.index} of an answer does not follow the one before.")
        whole = self._assembly.add(receive_piece(self._socket, self._assembly.room))
        if whole is not None:
            self._assembly = None
            self._settle(piece, self._answer_in(piece.kind, whole))

    def _settle(self, piece: Piece, answer: Frame | WireError) -> None:
        self._waiting.discard(piece.request)
        self._answers[piece.request] = answer

    def _answer_in(self, kind: MessageKind, content: memoryview) -> Frame | WireError:
        try:
            frame = unpack(content, self._limits)
        except FrameError as why:
            return why
        if kind is MessageKind.ERROR:
            return Refused(f"{self.address} says: {frame.header.get('error')}", str(frame.header.get("kind")))
        return frame


def _left_ms(until: float) -> int:
    return max(0, round((until - time.monotonic()) * 1000) + 1)
