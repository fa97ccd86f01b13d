"""Keys of a run: the ports' own pair, and clients' pairs that expire.

Every run makes its own, so a key found later opens nothing. Both ends are proven by CURVE: a client dials only the
server whose public key it was given, a port accepts only public keys on its run's list. A key is never printed:
neither ``repr`` nor an error shows any.
"""

import heapq
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dorylus.errors import ConfigError
from dorylus.wire.frames import WireError

_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_FIELDS = ("public", "secret", "server_public")


@dataclass(frozen=True, repr=False)
class ClientKeys:
    """What a client needs to dial the ports of a run: keys as Z85 text, and when they end (seconds since 1970)."""

    public: str
    secret: str
    server_public: str
    expires_at: float

    def __repr__(self) -> str:
        return f"ClientKeys(expires_at={self.expires_at:.0f})"

    def to_header(self) -> dict[str, Any]:
        """For the header of an invocation. Never log this."""
        return {name: getattr(self, name) for name in _FIELDS} | {"expires_at": self.expires_at}

    @classmethod
    def from_header(cls, header: Any) -> "ClientKeys":
        """What :meth:`to_header` gave, checked."""
        given = header if isinstance(header, Mapping) else {}
        bad = [name for name in _FIELDS if not (isinstance(given.get(name), str) and _Z85.fullmatch(given[name]))]
        ends: Any = given.get("expires_at")
        if type(ends) not in (int, float) or not abs(ends) < 1e12:
            bad.append("expires_at")
        if bad:
            raise WireError(f"keys in a header without a good {' and '.join(bad)}: each key is 40 characters of Z85.")
        return cls(given["public"], given["secret"], given["server_public"], float(ends))


class RunKeys:
    """The pair that a run's ports prove themselves by, and the list of clients they let in. For any thread."""

    def __init__(self, public: str, secret: str, clock: Callable[[], float] = time.time) -> None:
        self.public = public
        self._secret = secret
        self._clock = clock
        self._lock = threading.Lock()
        self._ends: dict[str, float] = {}
        self._by_end: list[tuple[float, str]] = []

    def __repr__(self) -> str:
        return f"RunKeys({len(self._ends)} clients)"

    def __reduce__(self) -> Any:
        raise TypeError("the keys of a run stay in the process that made them: hand out client keys instead.")

    @classmethod
    def fresh(cls, clock: Callable[[], float] = time.time) -> "RunKeys":
        """New keys with nobody on the list; ``clock`` tells seconds since 1970."""
        return cls(*_new_pair(), clock)

    def client(self, lifetime_s: float) -> ClientKeys:
        """A new client's keys, let in from now on for this long."""
        if not 0 < lifetime_s < float("inf"):
            raise ConfigError(f"lifetime_s={lifetime_s}: keys live for a finite time above 0 seconds.")
        public, secret = _new_pair()
        expires_at = self._clock() + lifetime_s
        self.allow(public, expires_at)
        return ClientKeys(public, secret, self.public, expires_at)

    def allow(self, public: str, expires_at: float) -> None:
        """Let the holder of this public key in until then: a key made elsewhere, or one whose time is changed."""
        with self._lock:
            self._forget_ended()
            self._ends[public] = expires_at
            heapq.heappush(self._by_end, (expires_at, public))

    def revoke(self, public: str) -> None:
        """Let this client in no more; on open connections, too."""
        with self._lock:
            self._ends.pop(public, None)

    def is_welcome(self, public: str) -> bool:
        """Whether the key is on the list and not expired."""
        with self._lock:
            ends = self._ends.get(public)
        return ends is not None and self._clock() < ends

    def secret_for_port(self) -> str:
        """The ports' own secret key: for the port that proves itself by it, and nobody else."""
        return self._secret

    def _forget_ended(self) -> None:
        now = self._clock()
        while self._by_end and self._by_end[0][0] <= now:
            ended, public = heapq.heappop(self._by_end)
            if self._ends.get(public) == ended:
                del self._ends[public]


def _new_pair() -> tuple[str, str]:
    from dorylus.wire.sockets import new_key_pair

    return new_key_pair()
