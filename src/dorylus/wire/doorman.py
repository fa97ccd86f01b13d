"""Who gets in: the answer to libzmq's question whether a key is welcome, and the count of those turned away."""

from collections import Counter

from dorylus.wire.keys import RunKeys
from dorylus.wire.sockets import GONE, TURNED_AWAY, WELCOMED, ZAP_ADDRESS, Context, Socket, reply_socket, z85_text


class Doorman:
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
