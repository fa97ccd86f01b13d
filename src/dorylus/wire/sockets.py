"""The ZeroMQ sockets of the wire: their options, sending and receiving pieces, and the authentication of keys.

Port and client sockets are encrypted by CURVE, drop unsent messages when they are closed, send heartbeats to find dead
peers, and hold a bounded number of messages. Pieces are sent from the memory they lie in and received into memory that
the caller provides. Importing this module without pyzmq raises an error that names the extra to install.
"""

from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from dorylus.errors import ConfigError
from dorylus.wire.frames import Buffer, WireError
from dorylus.wire.keys import ClientKeys, RunKeys
from dorylus.wire.pieces import MAX_PIECE_BYTES, PIECE_BYTES

try:
    import zmq
    from zmq.utils import z85
    from zmq.utils.monitor import parse_monitor_message
except ImportError as missing:
    raise ConfigError('the data path of functions needs pyzmq: pip install "dorylus[functions]"') from missing

Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]
Socket: TypeAlias = zmq.Socket[bytes]

ZAP_ADDRESS = "inproc://zeromq.zap.01"  # the address at which libzmq queries whether to accept a key
_MAX_MESSAGE_BYTES = MAX_PIECE_BYTES + 1024  # CURVE adds some bytes to each part
_RECEIVED_MESSAGES = 32  # per connection: enough to read while the other end writes
_HANDSHAKE_MS = 5_000
_BACKLOG = 512

KEY_REFUSED = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
HANDSHAKE_SUCCEEDED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
DISCONNECTED = int(zmq.EVENT_DISCONNECTED)
HANDSHAKE_FAILED = (
    KEY_REFUSED, int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL), int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL),
)  # fmt: skip


def new_context() -> Context:
    """A new context, which owns its sockets, threads and memory."""
    _allow_many_files()
    return zmq.Context()


def _allow_many_files() -> None:
    """Raise this process's limit of open files: a connection without a key holds one until its handshake times out."""
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
    """A ROUTER that accepts the clients that the context's ZAP handler accepts."""
    socket = _socket(context, zmq.ROUTER)
    socket.set(zmq.ROUTER_MANDATORY, 1)  # raise an error when a client has gone or does not read
    socket.set(zmq.CURVE_SERVER, 1)
    socket.set_string(zmq.CURVE_SECRETKEY, keys.secret_for_port())
    socket.set_string(zmq.ZAP_DOMAIN, "dorylus")
    socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without a handler no client is accepted
    socket.set(zmq.BACKLOG, _BACKLOG)
    # Two of the biggest frames may wait for a client that does not read; further answers are dropped.
    socket.set(zmq.SNDHWM, 2 * -(-max_frame_bytes // PIECE_BYTES) + 64)
    return socket


def client_socket(context: Context, keys: ClientKeys) -> Socket:
    """A DEALER that connects only to the port with the given public key."""
    socket = _socket(context, zmq.DEALER)
    socket.set_string(zmq.CURVE_SERVERKEY, keys.server_public)
    socket.set_string(zmq.CURVE_PUBLICKEY, keys.public)
    socket.set_string(zmq.CURVE_SECRETKEY, keys.secret)
    socket.set(zmq.IMMEDIATE, 1)  # nothing is queued before there is a connection
    socket.set(zmq.SNDHWM, _RECEIVED_MESSAGES)
    socket.set(zmq.RECONNECT_IVL, 100)
    socket.set(zmq.RECONNECT_IVL_MAX, 2_000)
    return socket


def bind(socket: Socket, host: str, port: int) -> int:
    """Listen on a host and port (0: any free one); returns the port's number."""
    try:
        socket.bind(f"tcp://{host}:{port or '*'}")
    except zmq.ZMQError as why:
        raise WireError(f"cannot listen on {host}:{port}: {why}. Use another port (0 for any) or address.") from why
    return int(socket.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2])


def connect(socket: Socket, address: str) -> None:
    """Begin to dial; libzmq retries in the background until the socket is closed."""
    try:
        socket.connect(address)
    except zmq.ZMQError as why:
        raise WireError(f"cannot dial {address!r}: {why}. An address looks like tcp://10.0.0.7:40123.") from why


def watch(socket: Socket, *events: int) -> Socket:
    """A socket that receives these events of another socket's connections; one per context."""
    socket.monitor("inproc://events", sum(events))
    watcher: Socket = socket.context.socket(zmq.PAIR)
    watcher.set(zmq.LINGER, 0)
    # libzmq's own thread blocks when this is full: with many unauthenticated connections closing would not return.
    watcher.set(zmq.RCVHWM, 0)
    watcher.connect("inproc://events")
    return watcher


def stop_signal(context: Context) -> tuple[Socket, Socket]:
    """Two connected sockets inside this process: a message sent on the second wakes a poller of the first."""
    ends: tuple[Socket, Socket] = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    for end in ends:
        end.set(zmq.LINGER, 0)
    ends[0].bind("inproc://stop")
    ends[1].connect("inproc://stop")
    return ends


def _socket(context: Context, kind: int) -> Socket:
    socket: Socket = context.socket(kind)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES)
    socket.set(zmq.RCVHWM, _RECEIVED_MESSAGES)
    socket.set(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    # Frozen functions send no heartbeat: their connections end, and are made again when the functions wake up.
    socket.set(zmq.HEARTBEAT_IVL, 10_000)
    socket.set(zmq.HEARTBEAT_TIMEOUT, 30_000)
    return socket


class Unreachable(Exception):  # noqa: N818  (each side handles it differently)
    """A message that cannot be sent now: the other end has gone, is not there yet, or does not read."""


@dataclass(frozen=True, slots=True)
class MessageStart:
    """The first part of a message: its connection, the public key of its client, and its content."""

    connection: bytes
    name: str
    content: Buffer


class Poller:
    """Waits until one of some sockets can be read from, or one written to."""

    def __init__(self, *read: Socket, write: Socket | None = None) -> None:
        self._poller = zmq.Poller()
        for socket in read:
            self._poller.register(socket, zmq.POLLIN)
        if write is not None:
            self._poller.register(write, zmq.POLLOUT)

    def wait(self, timeout_ms: int) -> Set[Socket]:
        """The sockets that are ready; none after the time-out."""
        return {socket for socket, _ in self._poller.poll(timeout_ms)}


def receive_start(router: Socket) -> MessageStart | None:
    """The first part of the next message that waits at a port, if any; call ``discard_rest`` afterwards."""
    if not _has_message(router):
        return None
    connection = router.recv(zmq.NOBLOCK)
    part = router.recv(zmq.NOBLOCK, copy=False)
    return MessageStart(connection, str(part.get("User-Id")), part.buffer if part.more else b"")


def receive_answer_start(dealer: Socket) -> bytes | None:
    """The first part of the next message that waits at a client, if any; call ``discard_rest`` afterwards."""
    return dealer.recv(zmq.NOBLOCK) if _has_message(dealer) else None


def receive_piece(socket: Socket, room: memoryview) -> int:
    """Receive the last part of a message into memory: its size, even if it did not fit; -1 if it was not the last."""
    size: int = socket.recv_into(room, flags=zmq.NOBLOCK)
    return -1 if socket.get(zmq.RCVMORE) else size


def discard_rest(socket: Socket) -> None:
    """Receive and drop the remaining parts of a message."""
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
    """Whether a message waits: this takes a third of the time of an exception."""
    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)


class KeyAuthenticator:
    """Accepts the clients on a run's list. One per context: libzmq queries one address (ZAP, ZeroMQ RFC 27)."""

    def __init__(self, context: Context, keys: RunKeys) -> None:
        self._keys = keys
        self.socket: Socket = reply_socket(context, ZAP_ADDRESS)

    def answer(self) -> None:
        """Answer one request of libzmq. Each message of an accepted client then carries its public key as a name."""
        request = self.socket.recv_multipart()
        public = _key_in(request)
        accepted = public is not None and self._keys.is_allowed(public)
        status, name = (b"200", str(public).encode()) if accepted else (b"400", b"")
        number = request[1] if len(request) > 1 else b""
        self.socket.send_multipart([b"1.0", number, status, b"", name, b""])


class StrangerCounter:
    """Counts connections without a valid key (``count``) from the events that libzmq reports.

    libzmq reports a handshake that fails. A connection that sends no handshake at all is reported only as a
    disconnection, like a client that leaves. Their number is that of disconnections beyond the handshakes, so they are
    counted once they outnumber the connected clients.
    """

    def __init__(self) -> None:
        self._failed = self._succeeded = self._disconnected = 0
        self.count = 0

    def add(self, event: int) -> None:
        """Count an event of a connection."""
        if event in HANDSHAKE_FAILED:
            self._failed += 1
        elif event == HANDSHAKE_SUCCEEDED:
            self._succeeded += 1
        elif event == DISCONNECTED:
            self._disconnected += 1
        without_handshake = self._disconnected - self._failed - self._succeeded  # a failed handshake disconnects, too
        self.count = max(self.count, self._failed + max(0, without_handshake))


def _key_in(request: list[bytes]) -> str | None:
    """The public key in a request of libzmq (ZAP)."""
    if len(request) != 7 or request[0] != b"1.0" or request[5] != b"CURVE" or len(request[6]) != 32:
        return None
    return z85_text(request[6])
