"""The ZeroMQ sockets of the wire with all their options. Says what to install when pyzmq is missing.

Both kinds are encrypted by CURVE, drop what is unsent when they are closed, beat to find dead peers, and hold a
bounded number of messages.

Messages through sockets: pieces out of the memory they lie in, and into memory that is waiting for them.

Who gets in: the answer to libzmq's question whether a key is welcome, and the count of those turned away.
"""

from collections import Counter
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import zmq
from zmq.utils.monitor import parse_monitor_message

from dorylus.errors import ConfigError
from dorylus.wire.frames import Buffer, WireError
from dorylus.wire.keys import ClientKeys, RunKeys
from dorylus.wire.pieces import MAX_PIECE_BYTES, PIECE_BYTES

try:
    import zmq
    from zmq.utils import z85
except ImportError as missing:
    raise ConfigError('the data path of functions needs pyzmq: pip install "dorylus[functions]"') from missing

Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]
Socket: TypeAlias = zmq.Socket[bytes]

ZAP_ADDRESS = "inproc://zeromq.zap.01"  # where libzmq asks whether a key is welcome
_MAX_MESSAGE_BYTES = MAX_PIECE_BYTES + 1024  # CURVE adds some bytes to each part
_RECEIVED_MESSAGES = 32  # per connection: enough to read while the other end writes
_HANDSHAKE_MS = 5_000
_BACKLOG = 512

KEY_REFUSED = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
WELCOMED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
GONE = int(zmq.EVENT_DISCONNECTED)
TURNED_AWAY = (
    KEY_REFUSED, int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL), int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL),
)  # fmt: skip


def new_context() -> Context:
    """A context of one's own: its sockets, threads and memory go with it."""
    _allow_many_files()
    return zmq.Context()


def _allow_many_files() -> None:
    """Let this process open as many files as it may: strangers hold one each until their handshake is given up."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if now < most or now == resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def new_key_pair() -> tuple[str, str]:
    """A public and a secret key as Z85 text."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def z85_text(key: bytes) -> str:
    """The 32 bytes of a key as Z85 text."""
    return z85.encode(key).decode()


def reply_socket(context: Context, address: str) -> Socket:
    """A REP that answers inside this process."""
    socket: Socket = context.socket(zmq.REP)
    socket.set(zmq.LINGER, 0)
    socket.bind(address)
    return socket


def port_socket(context: Context, keys: RunKeys, max_frame_bytes: int) -> Socket:
    """A ROUTER that lets in whom the context's ZAP handler lets in."""
    socket = _socket(context, zmq.ROUTER)
    socket.set(zmq.ROUTER_MANDATORY, 1)  # say when a client has gone or does not read, instead of dropping silently
    socket.set(zmq.CURVE_SERVER, 1)
    socket.set_string(zmq.CURVE_SECRETKEY, keys.secret_for_port())
    socket.set_string(zmq.ZAP_DOMAIN, "dorylus")
    socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without a handler nobody gets in
    socket.set(zmq.BACKLOG, _BACKLOG)
    # A client that does not read may leave two of the biggest frames waiting, then its answers are dropped.
    socket.set(zmq.SNDHWM, 2 * -(-max_frame_bytes // PIECE_BYTES) + 64)
    return socket


def client_socket(context: Context, keys: ClientKeys) -> Socket:
    """A DEALER that talks to the port with the right public key only."""
    socket = _socket(context, zmq.DEALER)
    socket.set_string(zmq.CURVE_SERVERKEY, keys.server_public)
    socket.set_string(zmq.CURVE_PUBLICKEY, keys.public)
    socket.set_string(zmq.CURVE_SECRETKEY, keys.secret)
    socket.set(zmq.IMMEDIATE, 1)  # nothing is queued for a connection that may never be
    socket.set(zmq.SNDHWM, _RECEIVED_MESSAGES)
    socket.set(zmq.RECONNECT_IVL, 100)
    socket.set(zmq.RECONNECT_IVL_MAX, 2_000)
    return socket


def bind(socket: Socket, host: str, port: int) -> int:
    """Listen there; port 0 takes any free one. Gives the port's number."""
    try:
        socket.bind(f"tcp://{host}:{port or '*'}")
    except zmq.ZMQError as why:
        raise WireError(f"cannot listen on {host}:{port}: {why}. Use another port (0 for any) or address.") from why
    return int(socket.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2])


def connect(socket: Socket, address: str) -> None:
    """Begin to dial; goes on in the background until the socket is closed."""
    try:
        socket.connect(address)
    except zmq.ZMQError as why:
        raise WireError(f"cannot dial {address!r}: {why}. An address looks like tcp://10.0.0.7:40123.") from why


def watch(socket: Socket, *events: int) -> Socket:
    """A socket that tells of these events of another one's connections; one per context."""
    socket.monitor("inproc://events", sum(events))
    watcher: Socket = socket.context.socket(zmq.PAIR)
    watcher.set(zmq.LINGER, 0)
    # libzmq's own thread waits when this is full: under a flood of strangers, closing would wait for it for ever.
    watcher.set(zmq.RCVHWM, 0)
    watcher.connect("inproc://events")
    return watcher


def bell(context: Context) -> tuple[Socket, Socket]:
    """Two ends of a line inside this process: what is sent on the second wakes who waits on the first."""
    ends: tuple[Socket, Socket] = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    for end in ends:
        end.set(zmq.LINGER, 0)
    ends[0].bind("inproc://bell")
    ends[1].connect("inproc://bell")
    return ends


def _socket(context: Context, kind: int) -> Socket:
    socket: Socket = context.socket(kind)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES)
    socket.set(zmq.RCVHWM, _RECEIVED_MESSAGES)
    socket.set(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    # Frozen functions answer no beat: their connections go, and are made anew when they wake up.
    socket.set(zmq.HEARTBEAT_IVL, 10_000)
    socket.set(zmq.HEARTBEAT_TIMEOUT, 30_000)
    return socket


class Unreachable(Exception):  # noqa: N818  (each side has its own way on from here)
    """A message that cannot be sent now: the other end has gone, is not there yet, or does not read."""


@dataclass(frozen=True, slots=True)
class MessageStart:
    """The first part of a message: from which connection, by whose key, and what it says."""

    connection: bytes
    name: str
    content: Buffer


class Poller:
    """Waits until one of some sockets has something to read, or takes something to write."""

    def __init__(self, *read: Socket, write: Socket | None = None) -> None:
        self._poller = zmq.Poller()
        for socket in read:
            self._poller.register(socket, zmq.POLLIN)
        if write is not None:
            self._poller.register(write, zmq.POLLOUT)

    def wait(self, timeout_ms: int) -> Set[Socket]:
        """The sockets that are ready; none when the time has passed."""
        return {socket for socket, _ in self._poller.poll(timeout_ms)}


def receive_start(router: Socket) -> MessageStart | None:
    """The beginning of the next message that waits at a port, if any; follow it by ``discard_rest`` in any case."""
    if not _has_message(router):
        return None
    connection = router.recv(zmq.NOBLOCK)
    part = router.recv(zmq.NOBLOCK, copy=False)
    return MessageStart(connection, str(part.get("User-Id")), part.buffer if part.more else b"")


def receive_answer_start(dealer: Socket) -> bytes | None:
    """What the next message that waits at a client begins with, if any; follow it by ``discard_rest`` in any case."""
    return dealer.recv(zmq.NOBLOCK) if _has_message(dealer) else None


def receive_piece(socket: Socket, room: memoryview) -> int:
    """Receive the last part of a message into memory: its size, even if it did not fit; -1 if it was not the last."""
    size: int = socket.recv_into(room, flags=zmq.NOBLOCK)
    return -1 if socket.get(zmq.RCVMORE) else size


def discard_rest(socket: Socket) -> None:
    """Read the parts of a message that are left, and keep nothing."""
    while socket.get(zmq.RCVMORE):
        socket.recv_into(bytearray(1), flags=zmq.NOBLOCK)


def send_piece(socket: Socket, start: bytes, content: Buffer, connection: bytes = b"") -> None:
    """Send a message of two parts, the second without copying unless it is small. Raises :class:`Unreachable`."""
    try:
        if connection:
            socket.send(connection, zmq.NOBLOCK | zmq.SNDMORE)
        socket.send(start, zmq.NOBLOCK | zmq.SNDMORE)
        socket.send(content, zmq.NOBLOCK, copy=False)
    except zmq.ZMQError as why:
        if why.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
            raise Unreachable from None
        raise


def next_event(monitor: Socket) -> int | None:
    """The next event that waits, if any."""
    if not _has_message(monitor):
        return None
    return int(parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"])


def _has_message(socket: Socket) -> bool:
    """Whether one waits: asking costs a third of what an exception does."""
    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)


class KeyAuthenticator:
    """Lets in the clients on a run's list. One per context: libzmq asks at one address (ZAP, ZeroMQ RFC 27)."""

    def __init__(self, context: Context, keys: RunKeys) -> None:
        self._keys = keys
        self.socket: Socket = reply_socket(context, ZAP_ADDRESS)

    def answer(self) -> None:
        """Answer one question. The name that comes with each message of a welcome client is its public key."""
        question = self.socket.recv_multipart()
        public = _key_in(question)
        welcome = public is not None and self._keys.is_welcome(public)
        status, name = (b"200", str(public).encode()) if welcome else (b"400", b"")
        number = question[1] if len(question) > 1 else b""
        self.socket.send_multipart([b"1.0", number, status, b"", name, b""])


class Turnstile:
    """Counts strangers from what libzmq tells of connections.

    A handshake that fails is told. Who sends what is no handshake at all is told like a client who leaves: those are
    the departures beyond the arrivals, so such strangers count once they outnumber the clients that are connected.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self.strangers = 0

    def note(self, event: int) -> None:
        """Take in an event of a connection."""
        if event in TURNED_AWAY:
            self._seen["turned away"] += 1
        elif event in (WELCOMED, GONE):
            self._seen["welcomed" if event == WELCOMED else "gone"] += 1
        told = self._seen["turned away"]  # each of these is also told to be gone
        untold = self._seen["gone"] - told - self._seen["welcomed"]
        self.strangers = max(self.strangers, told + max(0, untold))


def _key_in(question: list[bytes]) -> str | None:
    """The public key that a question is about."""
    if len(question) != 7 or question[0] != b"1.0" or question[5] != b"CURVE" or len(question[6]) != 32:
        return None
    return z85_text(question[6])
