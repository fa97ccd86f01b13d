"""A data port: where clients with a run's keys ask for arrays and bring arrays.

One thread does all: it lets clients in, puts requests together, calls ``answer`` and sends what it gives. So an answer
must be quick (a slice, a copy into place, a look-up) and never wait for another task: while it runs nobody else is
served; those that take long are counted. Whatever comes in and whatever ``answer`` raises, the thread goes on.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeAlias

from dorylus.wire.doorman import Doorman, Turnstile
from dorylus.wire.errors import FrameError, Refused, WireError
from dorylus.wire.frames import DEFAULT, HEAD, Buffer, Frame, Limits, frame_bytes, pack, unpack
from dorylus.wire.intake import Intake, Refusal
from dorylus.wire.keys import RunKeys
from dorylus.wire.pieces import Kind, Piece, messages
from dorylus.wire.sockets import GONE, TURNED_AWAY, WELCOMED, bell, bind, new_context, port_socket, watch
from dorylus.wire.transfer import (
    Poller,
    Start,
    Unreachable,
    discard_rest,
    next_event,
    receive_piece,
    receive_start,
    send_piece,
)

Answer: TypeAlias = Callable[[Frame], Frame | Sequence[Buffer]]

_SLOW_S = 0.25
_SWEEP_MS = 1_000
_AT_A_TIME = 64  # messages, before newcomers at the door are looked after again


@dataclass
class Counts:
    """What a port has done and refused."""

    served: int = 0
    refused: int = 0  # ``answer`` raised Refused
    failed: int = 0  # ``answer`` raised anything else, or gave what no frame can carry
    slow: int = 0  # answers that took longer than a quarter of a second
    strangers: int = 0  # connections without a key of ours: none, another, an expired one, or no handshake at all
    expired: int = 0  # messages on open connections whose key has expired since
    garbage: int = 0  # messages and frames that are malformed
    replays: int = 0  # requests whose number did not grow
    oversize: int = 0  # requests that say they are longer than a frame may be
    busy: int = 0  # requests begun while too many others were half-way in
    unfinished: int = 0  # requests whose pieces stopped coming
    undelivered: int = 0  # answers to clients that have gone or do not read


class DataPort:
    """Listens from the moment it is made until it is closed.

    ``answer(frame)`` gives a frame, or the parts of one already packed. The request's arrays are views into a buffer
    that stays as it is for as long as any of them is kept. The answer's arrays are sent without copying, after the
    call: they must not be written to until the client has them. Raise :class:`Refused` to decline with a reason.
    ``advertise`` is the host that clients dial, when it is not the address listened on.
    """

    def __init__(
        self,
        keys: RunKeys,
        answer: Answer,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits = DEFAULT,
        advertise: str | None = None,
    ) -> None:
        self._answer, self._limits = answer, limits
        self._intake = Intake(keys, limits)
        self._turnstile = Turnstile()
        self._counts = Counts()
        self._closing = threading.Lock()
        self._context = new_context()
        try:
            self._doorman = Doorman(self._context, keys)
            self._router = port_socket(self._context, keys, limits.max_frame_bytes)
            self._events = watch(self._router, *TURNED_AWAY, WELCOMED, GONE)
            self._bell, self._button = bell(self._context)
            self.address = f"tcp://{advertise or host}:{bind(self._router, host, port)}"
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._thread = threading.Thread(target=self._serve, name=f"dorylus-port-{self.address}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"DataPort({self.address})"

    def __enter__(self) -> "DataPort":
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def counts(self) -> Counts:
        """What was done and refused so far."""
        return replace(self._counts, strangers=self._turnstile.strangers)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop listening and drop what is under way; closing twice is fine."""
        with self._closing:
            if self._context.closed:
                return
            self._button.send(b"")
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise WireError(f"{self!r} did not stop within {timeout_s} s: an answer is still at work.")
            self._context.destroy(linger=0)

    def _serve(self) -> None:
        poller = Poller(self._bell, self._doorman.socket, self._events, self._router)
        while True:
            try:
                ready = poller.wait(_SWEEP_MS)
                if self._bell in ready:
                    return
                if self._doorman.socket in ready:
                    self._doorman.answer()
                if self._events in ready:
                    self._note_events()
                if self._router in ready:
                    self._take_some()
                self._counts.unfinished += self._intake.drop_late()
            except Exception:  # a port never dies of what comes in
                self._counts.failed += 1

    def _note_events(self) -> None:
        while (event := next_event(self._events)) is not None:
            self._turnstile.note(event)

    def _take_some(self) -> None:
        for _ in range(_AT_A_TIME):
            try:
                start = receive_start(self._router)
                if start is None:
                    return
                request = self._take(start)
            finally:
                discard_rest(self._router)
            if request is not None:
                self._reply(start.connection, *request)

    def _take(self, start: Start) -> tuple[Piece, memoryview] | None:
        try:
            return self._intake.take(
                start.connection, start.name, start.content, lambda room: receive_piece(self._router, room)
            )
        except Refusal as refusal:
            self._decline(start.connection, refusal.piece, refusal.counts_as, str(refusal))
            return None

    def _reply(self, connection: bytes, piece: Piece, content: memoryview) -> None:
        try:
            frame = unpack(content, self._limits)
        except FrameError as why:
            self._decline(connection, piece, "garbage", str(why))
            return
        begun = time.monotonic()
        try:
            parts = self._packed(self._answer(frame))
        except Refused as why:
            self._decline(connection, piece, "refused", str(why))
        except Exception as why:
            self._decline(connection, piece, "failed", f"{type(why).__name__}: {why}")
        else:
            self._counts.served += 1  # before it is sent: who has an answer finds it counted
            self._send(connection, Kind.REPLY, piece, parts)
        self._counts.slow += time.monotonic() - begun > _SLOW_S

    def _packed(self, given: Frame | Sequence[Buffer]) -> Sequence[Buffer]:
        if isinstance(given, Frame):
            return pack(given.header, given.arrays, self._limits)
        found, most = frame_bytes(given), self._limits.max_frame_bytes
        if not HEAD.size <= found <= most:
            raise FrameError(f"an answer of {found} bytes: a frame has at least {HEAD.size} and at most {most}.")
        return given

    def _decline(self, connection: bytes, piece: Piece | None, counts_as: str, reason: str) -> None:
        """Count what is not answered, and send the reason where there is a request to send it to."""
        setattr(self._counts, counts_as, getattr(self._counts, counts_as) + 1)
        if piece is not None:
            text = reason[:2000].encode(errors="replace").decode()
            self._send(connection, Kind.ERROR, piece, pack({"error": text, "kind": counts_as}, {}))

    def _send(self, connection: bytes, kind: Kind, asked: Piece, parts: Sequence[Buffer]) -> None:
        start = replace(asked, kind=kind, index=0, total_bytes=frame_bytes(parts))
        try:
            for head, content in messages(start, parts):
                send_piece(self._router, head, content, connection)
        except Unreachable:
            self._counts.undelivered += 1
