"""A TCP connection between two servers of a run, over which frames travel one after the other.

Both ends prove that they know the run's secret before anything else is read (each answers a challenge by an HMAC). The
frames that follow are neither encrypted nor signed, because that would take longer than sending them: servers need a
private network (docs/cluster.md).
"""

import hmac
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from dorylus.wire.frames import DEFAULT, HEAD, Buffer, Frame, FrameLimits, WireError, unpack
from dorylus.wire.pieces import Buffers

HANDSHAKE_S: Final = 10.0  # in all, from dialling or answering on, however the bytes come
HELLO_S: Final = 3.0  # of these, for the first message of the dialling end
SILENCE_S: Final = 20.0  # within a frame, and until a lost peer is noticed
SECRET_BYTES: Final = 32

_HELLO: Final = struct.Struct("<8sQII32s")  # magic and version, session, dialling server, dialled server, challenge
_MAGIC: Final = b"DRYLINE1"
_PROOF_BYTES: Final = 32
_MOST_PARTS: Final = 512  # of one sendmsg call


def new_secret() -> bytes:
    """A new secret, shared by the servers of one run."""
    return secrets.token_bytes(SECRET_BYTES)


class Connection:
    """One end of a connection. Frames travel in one direction: the end that dialled sends, the other receives."""

    def __init__(self, link: socket.socket, peer: int, session: int, limits: FrameLimits = DEFAULT) -> None:
        self.peer, self.session = peer, session
        self._link, self._limits = link, limits
        self._buffers = Buffers()
        link.settimeout(SILENCE_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            link.setsockopt(socket.IPPROTO_TCP, option, value)

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send a frame; raises OSError when the connection is lost."""
        views = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
        while views:
            sent = self._link.sendmsg(views[:_MOST_PARTS])
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]

    def receive(self) -> Frame:
        """The next frame, however long it takes to begin; raises OSError or EOFError when the connection is lost.

        Its arrays are views into a buffer that does not change while any of them is kept.
        """
        head = bytearray(HEAD.size)
        self._link.settimeout(None)
        _fill(self._link, memoryview(head)[:1])
        self._link.settimeout(SILENCE_S)
        _fill(self._link, memoryview(head)[1:])
        total = int(HEAD.unpack(head)[-1])
        self._limits.check_size(total)
        whole = self._buffers.take(total)
        whole[: HEAD.size] = head
        _fill(self._link, whole[HEAD.size :])
        return unpack(whole, self._limits)

    def close(self) -> None:
        """Close the connection; a thread that sends or receives on it, at either end, gets an error."""
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()


def dial(
    address: tuple[str, int], secret: bytes, session: int, me: int, peer: int, limits: FrameLimits = DEFAULT
) -> Connection:
    """A connection to the peer at an address; raises :class:`WireError` with the reason if there is none."""
    until_s = time.monotonic() + HANDSHAKE_S
    try:
        link = socket.create_connection(address, HANDSHAKE_S)
    except OSError as why:
        raise WireError(f"server {peer} at {address[0]}:{address[1]} cannot be reached: {why}.") from why
    try:
        hello = _HELLO.pack(_MAGIC, session, me, peer, secrets.token_bytes(32))
        link.sendall(hello)
        answer = _exactly(link, _PROOF_BYTES + 32, until_s)
        proof, challenge = answer[:_PROOF_BYTES], answer[_PROOF_BYTES:]
        if not hmac.compare_digest(proof, _proof(secret, b"dialled", hello, challenge)):
            raise WireError(f"the listener at {address[0]}:{address[1]} is not server {peer} of this run.")
        link.sendall(_proof(secret, b"dials", hello, challenge))
        return Connection(link, peer, session, limits)
    except (OSError, EOFError) as why:
        link.close()
        raise WireError(
            f"server {peer} at {address[0]}:{address[1]} closed the connection: {why or 'it refused us'}."
        ) from why
    except BaseException:
        link.close()
        raise


def answer(link: socket.socket, secret: bytes, session: int, me: int, limits: FrameLimits = DEFAULT) -> Connection:
    """The connection to a peer of this session that dialled; raises WireError, OSError or EOFError if it is no peer."""
    begun_s = time.monotonic()
    hello = _exactly(link, _HELLO.size, begun_s + HELLO_S)
    magic, its_session, peer, dialled, _ = _HELLO.unpack(hello)
    if magic != _MAGIC or its_session != session or dialled != me:
        raise WireError("the dialling end is no server of this session.")
    challenge = secrets.token_bytes(32)
    link.sendall(_proof(secret, b"dialled", hello, challenge) + challenge)
    proof = _exactly(link, _PROOF_BYTES, begun_s + HANDSHAKE_S)
    if not hmac.compare_digest(proof, _proof(secret, b"dials", hello, challenge)):
        raise WireError("the dialling end does not know the run's secret.")
    return Connection(link, peer, session, limits)


def _proof(secret: bytes, role: bytes, hello: bytes, challenge: bytes) -> bytes:
    """The proof that an end knows the secret; it differs between the ends and between connections."""
    return hmac.digest(secret, role + b"\0" + hello + challenge, "sha256")


def _exactly(link: socket.socket, count: int, until_s: float) -> bytes:
    """``count`` bytes, all before ``until_s``: a time-out for each read would let single bytes arrive without end."""
    room = bytearray(count)
    _fill(link, memoryview(room), until_s)
    return bytes(room)


def _fill(link: socket.socket, room: memoryview, until_s: float | None = None) -> None:
    while room:
        if until_s is not None:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("timed out")
            link.settimeout(left_s)
        got = link.recv_into(room)
        if not got:
            raise EOFError("the other end closed the connection")
        room = room[got:]


def _keepalive() -> dict[int, int]:
    """The socket options after how much silence a peer counts as lost, as far as this system has them."""
    options = {
        "TCP_KEEPIDLE": 5,
        "TCP_KEEPINTVL": 5,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": round(SILENCE_S * 1e3),
    }
    return {getattr(socket, name): value for name, value in options.items() if hasattr(socket, name)}


_KEEPALIVE: Final = _keepalive()
