"""Keys of a run: the ports' own pair, and clients' pairs that expire.

Every run makes its own keys, so a key is useless after the run. CURVE authenticates both ends: a client connects only
to the server whose public key it has, a port accepts only public keys on its run's list. A key is never printed,
neither by ``repr`` nor in errors.
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
    """What a client needs to connect to the ports of a run: keys as Z85 text, and when they expire (Unix seconds)."""

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
        """The keys that :meth:`to_header` wrote, checked."""
        given = header if isinstance(header, Mapping) else {}
        bad = [name for name in _FIELDS if not (isinstance(given.get(name), str) and _Z85.fullmatch(given[name]))]
        expires_at: Any = given.get("expires_at")
        if type(expires_at) not in (int, float) or not abs(expires_at) < 1e12:
            bad.append("expires_at")
        if bad:
            raise WireError(f"keys in a header without a good {' and '.join(bad)}: each key is 40 characters of Z85.")
        return cls(given["public"], given["secret"], given["server_public"], float(expires_at))


class RunKeys:
    """The key pair of a run's ports, and the list of clients that they accept. Thread-safe."""

    def __init__(self, public: str, secret: str, clock: Callable[[], float] = time.time) -> None:
        self.public = public
        self._secret = secret
        self._clock = clock
        self._lock = threading.Lock()
        self._expiry: dict[str, float] = {}
        self._by_expiry: list[tuple[float, str]] = []

    def __repr__(self) -> str:
        return f"RunKeys({len(self._expiry)} clients)"

    def __reduce__(self) -> Any:
        raise TypeError("the keys of a run stay in the process that made them: hand out client keys instead.")

    @classmethod
    def fresh(cls, clock: Callable[[], float] = time.time) -> "RunKeys":
        """New keys with no client on the list; ``clock`` returns Unix seconds."""
        return cls(*_new_pair(), clock)

    def client(self, lifetime_s: float) -> ClientKeys:
        """A new client's keys, accepted from now on for this long."""
        if not 0 < lifetime_s < float("inf"):
            raise ConfigError(f"lifetime_s={lifetime_s}: the lifetime of keys is finite and above 0 seconds.")
        public, secret = _new_pair()
        expires_at = self._clock() + lifetime_s
        self.allow(public, expires_at)
        return ClientKeys(public, secret, self.public, expires_at)

    def allow(self, public: str, expires_at: float) -> None:
        """Accept the holder of this public key until then: a key of another process, or one whose expiry changes."""
        with self._lock:
            self._drop_expired()
            self._expiry[public] = expires_at
            heapq.heappush(self._by_expiry, (expires_at, public))

    def revoke(self, public: str) -> None:
        """Accept this client no longer, on open connections neither."""
        with self._lock:
            self._expiry.pop(public, None)

    def is_allowed(self, public: str) -> bool:
        """Whether the key is on the list and not expired."""
        with self._lock:
            expires_at = self._expiry.get(public)
        return expires_at is not None and self._clock() < expires_at

    def secret_for_port(self) -> str:
        """The ports' secret key. Only a port may use it."""
        return self._secret

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._by_expiry and self._by_expiry[0][0] <= now:
            expired_at, public = heapq.heappop(self._by_expiry)
            if self._expiry.get(public) == expired_at:
                del self._expiry[public]


def _new_pair() -> tuple[str, str]:
    from dorylus.wire.sockets import new_key_pair

    return new_key_pair()
