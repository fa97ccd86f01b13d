"""Requests on their way in: put together from pieces, one per connection. Knows no socket.

Refused here: keys that have expired since the connection was made, replays, lengths beyond the limits, pieces that do
not follow each other, and more unfinished requests than memory is meant for.
"""

import time
from collections.abc import Callable

from dorylus.wire.buffers import Buffers
from dorylus.wire.errors import FrameError
from dorylus.wire.frames import Buffer, Limits
from dorylus.wire.keys import RunKeys
from dorylus.wire.pieces import Assembly, Kind, Piece
from dorylus.wire.sessions import Sessions

Receive = Callable[[memoryview], int]  # puts a message's content into the memory; gives its size, -1 if it is no piece


class Refusal(Exception):  # noqa: N818  (no error: the port counts it and goes on)
    """A message that is not taken: under what it counts, and to which request the reason is sent, if to any."""

    def __init__(self, counts_as: str, text: str, piece: Piece | None = None) -> None:
        super().__init__(text)
        self.counts_as, self.piece = counts_as, piece


class Intake:
    """The requests that are not whole yet; at most one per connection, for at most ``patience_s``."""

    def __init__(
        self,
        keys: RunKeys,
        limits: Limits,
        *,
        max_pending_bytes: int | None = None,
        patience_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys, self._limits, self._clock = keys, limits, clock
        self._max_pending_bytes = max_pending_bytes or 4 * limits.max_frame_bytes
        self._patience_s = patience_s
        self._pending: dict[bytes, tuple[float, Assembly]] = {}
        self._sessions = Sessions()
        self._buffers = Buffers()

    @property
    def pending_bytes(self) -> int:
        """What the unfinished requests may grow to."""
        return sum(assembly.total_bytes for _, assembly in self._pending.values())

    def take(self, connection: bytes, name: str, start: Buffer, receive: Receive) -> tuple[Piece, memoryview] | None:
        """Take in a message: the request it makes whole, if it does. Raises :class:`Refusal`."""
        try:
            piece = Piece.from_bytes(start)
        except FrameError as why:
            raise Refusal("garbage", str(why)) from None
        if not self._keys.is_welcome(name):
            self._pending.pop(connection, None)
            raise Refusal("expired", "the key has expired or was revoked: ask for a new one.", piece)
        if piece.index == 0:
            self._begin(connection, name, piece)
        whole = self._add(connection, piece, receive)
        return None if whole is None else (piece, whole)

    def drop_late(self) -> int:
        """Forget requests that took too long to become whole: how many."""
        now = self._clock()
        late = [connection for connection, (until, _) in self._pending.items() if until < now]
        for connection in late:
            del self._pending[connection]
        return len(late)

    def _begin(self, connection: bytes, name: str, piece: Piece) -> None:
        # Frames of one connection come one after the other: what was not finished before this one never will be.
        self._pending.pop(connection, None)
        if piece.kind is not Kind.REQUEST:
            raise Refusal("garbage", "only requests are taken here.")
        if not self._sessions.is_new(name, piece.session, piece.request):
            raise Refusal("replays", f"request {piece.request} has been here before.")  # the first got its answer
        most = self._limits.max_frame_bytes
        if piece.total_bytes > most:
            raise Refusal("oversize", f"a request of {piece.total_bytes} bytes: at most {most} are accepted.", piece)
        if self.pending_bytes + piece.total_bytes > self._max_pending_bytes:
            raise Refusal("busy", "too many requests are half-way in: ask again later.", piece)
        until = self._clock() + self._patience_s
        self._pending[connection] = (until, Assembly(piece, self._buffers.take(piece.total_bytes)))

    def _add(self, connection: bytes, piece: Piece, receive: Receive) -> memoryview | None:
        _, assembly = self._pending.get(connection, (0.0, None))
        if assembly is None or not assembly.expects(piece):
            self._pending.pop(connection, None)
            raise Refusal("garbage", f"piece {piece.index} of a request does not follow what came before.", piece)
        try:
            whole = assembly.add(receive(assembly.room))
        except FrameError as why:
            del self._pending[connection]
            raise Refusal("garbage", str(why), piece) from None
        if whole is not None:
            del self._pending[connection]
        return whole
