"""A data port: clients with a run's keys request arrays from it and send arrays to it.

One thread does everything: it authenticates clients, assembles requests from pieces (:class:`FrameReceiver`, which
knows no socket), calls ``answer`` and sends the reply. So an answer must be fast (a slice, a copy into place, a
look-up) and must never wait for another task: while it runs, no other client is served. Slow answers are counted. No
input, and no error that ``answer`` raises, ends the thread.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeAlias

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
from dorylus.wire.keys import RunKeys
from dorylus.wire.pieces import Buffers, FrameAssembler, MessageKind, Piece, ReplayGuard, messages
from dorylus.wire.sockets import (
    DISCONNECTED,
    HANDSHAKE_FAILED,
    HANDSHAKE_SUCCEEDED,
    KeyAuthenticator,
    MessageStart,
    Poller,
    StrangerCounter,
    Unreachable,
    bind,
    discard_rest,
    new_context,
    next_event,
    port_socket,
    receive_piece,
    receive_start,
    send_piece,
    stop_signal,
    watch,
)

PATIENCE_S = 30.0  # for all pieces of a request
Receive = Callable[[memoryview], int]  # receives content into the memory; returns its size, or -1 if it is no piece


class Refusal(Exception):  # noqa: N818  (no error: the port counts it and continues)
    """A message that is not accepted: the count it adds to, and the request to answer with the reason, if any."""

    def __init__(self, counts_as: str, text: str, piece: Piece | None = None) -> None:
        super().__init__(text)
        self.counts_as, self.piece = counts_as, piece


class FrameReceiver:
    """Assembles requests from pieces: at most one per connection at a time, for at most ``patience_s``."""

    def __init__(
        self,
        keys: RunKeys,
        limits: FrameLimits,
        *,
        max_pending_bytes: int | None = None,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys, self._limits, self._clock = keys, limits, clock
        self._max_pending_bytes = max_pending_bytes or 4 * limits.max_frame_bytes
        self._patience_s = patience_s
        self._pending: dict[bytes, tuple[float, FrameAssembler]] = {}
        self._replays = ReplayGuard()
        self._buffers = Buffers()

    @property
    def pending_bytes(self) -> int:
        """The bytes of all unfinished requests once they are complete."""
        return sum(assembly.total_bytes for _, assembly in self._pending.values())

    def accept(self, connection: bytes, name: str, start: Buffer, receive: Receive) -> tuple[Piece, memoryview] | None:
        """Accept a message; returns the request that it completes, if it does. Raises :class:`Refusal`."""
        try:
            piece = Piece.from_bytes(start)
        except FrameError as why:
            raise Refusal("garbage", str(why)) from None
        if not self._keys.is_allowed(name):
            self._pending.pop(connection, None)
            raise Refusal("expired", "the key has expired or was revoked: request a new one.", piece)
        if piece.index == 0:
            self._begin(connection, name, piece)
        whole = self._add(connection, piece, receive)
        return None if whole is None else (piece, whole)

    def drop_late(self) -> int:
        """Drop requests that take too long to arrive; returns how many."""
        now = self._clock()
        late = [connection for connection, (until, _) in self._pending.items() if until < now]
        for connection in late:
            del self._pending[connection]
        return len(late)

    def _begin(self, connection: bytes, name: str, piece: Piece) -> None:
        # Frames of one connection come one after the other: an unfinished request before this one stays unfinished.
        self._pending.pop(connection, None)
        if piece.kind is not MessageKind.REQUEST:
            raise Refusal("garbage", "a port accepts requests only.")
        if not self._replays.is_new(name, piece.session, piece.request):
            raise Refusal("replays", f"request {piece.request} was received before.")  # the first got its answer
        try:
            self._limits.check_size(piece.total_bytes, "a request")
        except FrameError as why:
            raise Refusal("oversize", str(why), piece) from None
        if self.pending_bytes + piece.total_bytes > self._max_pending_bytes:
            raise Refusal("busy", "too many requests are partly received: send it again later.", piece)
        until = self._clock() + self._patience_s
        self._pending[connection] = (until, FrameAssembler(piece, self._buffers.take(piece.total_bytes)))

    def _add(self, connection: bytes, piece: Piece, receive: Receive) -> memoryview | None:
        _, assembly = self._pending.get(connection, (0.0, None))
        if assembly is None or not assembly.expects(piece):
            self._pending.pop(connection, None)
            raise Refusal("garbage", f"piece {piece.index} of a request does not follow the one before.", piece)
        try:
            whole = assembly.add(receive(assembly.room))
        except FrameError as why:
            del self._pending[connection]
            raise Refusal("garbage", str(why), piece) from None
        if whole is not None:
            del self._pending[connection]
        return whole


Answer: TypeAlias = Callable[[Frame], Frame | Sequence[Buffer]]

_SLOW_S = 0.25
_SWEEP_MS = 1_000
_AT_A_TIME = 64  # messages, before new connections are authenticated again


@dataclass
class PortCounts:
    """What a port has done and refused."""

    served: int = 0
    refused: int = 0  # ``answer`` raised Refused
    failed: int = 0  # ``answer`` raised another error, or returned what no frame can carry
    slow: int = 0  # answers that took longer than a quarter of a second
    strangers: int = 0  # connections without a key of the run: no key, an unknown or expired one, or no handshake
    expired: int = 0  # messages on open connections whose key has expired since
    garbage: int = 0  # messages and frames that are malformed
    replays: int = 0  # requests whose number did not grow
    oversize: int = 0  # requests whose declared length exceeds that of a frame
    busy: int = 0  # requests begun while too many others were partly received
    unfinished: int = 0  # requests whose pieces stopped arriving
    undelivered: int = 0  # answers to clients that have gone or do not read


class DataPort:
    """Listens from the moment it is made until it is closed.

    ``answer(frame)`` returns a frame, or the parts of a packed one. The request's arrays are views into a buffer that
    does not change while any of them is kept. The answer's arrays are sent without copying, after the
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
        limits: FrameLimits = DEFAULT,
        advertise: str | None = None,
    ) -> None:
        self._answer, self._limits = answer, limits
        self._receiver = FrameReceiver(keys, limits)
        self._strangers = StrangerCounter()
        self._counts = PortCounts()
        self._closing = threading.Lock()
        self._context = new_context()
        try:
            self._authenticator = KeyAuthenticator(self._context, keys)
            self._router = port_socket(self._context, keys, limits.max_frame_bytes)
            self._events = watch(self._router, *HANDSHAKE_FAILED, HANDSHAKE_SUCCEEDED, DISCONNECTED)
            self._stop_receiver, self._stop_sender = stop_signal(self._context)
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
    def counts(self) -> PortCounts:
        """What the port has done and refused so far."""
        return replace(self._counts, strangers=self._strangers.count)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop listening and drop the requests in flight; closing twice is fine."""
        with self._closing:
            if self._context.closed:
                return
            self._stop_sender.send(b"")
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise WireError(f"{self!r} did not stop within {timeout_s} s: an answer is still running.")
            self._context.destroy(linger=0)

    def _serve(self) -> None:
        poller = Poller(self._stop_receiver, self._authenticator.socket, self._events, self._router)
        while True:
            try:
                ready = poller.wait(_SWEEP_MS)
                if self._stop_receiver in ready:
                    return
                if self._authenticator.socket in ready:
                    self._authenticator.answer()
                if self._events in ready:
                    self._count_events()
                if self._router in ready:
                    self._receive_some()
                self._counts.unfinished += self._receiver.drop_late()
            except Exception:  # no input may end the port
                self._counts.failed += 1

    def _count_events(self) -> None:
        while (event := next_event(self._events)) is not None:
            self._strangers.add(event)

    def _receive_some(self) -> None:
        for _ in range(_AT_A_TIME):
            try:
                start = receive_start(self._router)
                if start is None:
                    return
                request = self._receive(start)
            finally:
                discard_rest(self._router)
            if request is not None:
                self._reply(start.connection, *request)

    def _receive(self, start: MessageStart) -> tuple[Piece, memoryview] | None:
        try:
            return self._receiver.accept(
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
            self._counts.served += 1  # counted before it is sent, so that a client with its answer finds it counted
            self._send(connection, MessageKind.REPLY, piece, parts)
        self._counts.slow += time.monotonic() - begun > _SLOW_S

    def _packed(self, reply: Frame | Sequence[Buffer]) -> Sequence[Buffer]:
        if isinstance(reply, Frame):
            return pack(reply.header, reply.arrays, self._limits)
        self._limits.check_size(frame_bytes(reply), "an answer")
        return reply

    def _decline(self, connection: bytes, piece: Piece | None, counts_as: str, reason: str) -> None:
        """Count a message that is not answered, and send the reason to the request it belongs to, if any."""
        setattr(self._counts, counts_as, getattr(self._counts, counts_as) + 1)
        if piece is not None:
            text = reason[:2000].encode(errors="replace").decode()
            self._send(connection, MessageKind.ERROR, piece, pack({"error": text, "kind": counts_as}, {}))

    def _send(self, connection: bytes, kind: MessageKind, request: Piece, parts: Sequence[Buffer]) -> None:
        start = replace(request, kind=kind, index=0, total_bytes=frame_bytes(parts))
        try:
            for head, content in messages(start, parts):
                send_piece(self._router, head, content, connection)
        except Unreachable:
            self._counts.undelivered += 1
