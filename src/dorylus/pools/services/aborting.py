"""Connections that can be cut while an answer is awaited on them, which boto3 offers no way to."""

import socket
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakSet


class Connections:
    """The open connections of boto3 clients; any thread may close them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: WeakSet[Any] = WeakSet()
        self.closed = False

    def watch(self, client: Any) -> None:
        """Know of every connection the client opens from now on."""
        # Not part of boto3's promises: where this has moved, closing waits for answers instead of cutting them off.
        session: Any = getattr(getattr(client, "_endpoint", None), "http_session", None)
        maker: Any = getattr(session, "_manager", None)
        if maker is not None:
            pools = maker.pool_classes_by_scheme
            maker.pool_classes_by_scheme = {scheme: self._watched(pool) for scheme, pool in pools.items()}

    def close(self) -> None:
        """Cut all, and each that is opened from now on."""
        with self._lock:
            self.closed = True
            connections = list(self._open)
        for connection in connections:
            _cut(connection)

    def _opened(self, connection: Any) -> None:
        with self._lock:
            self._open.add(connection)
            closed = self.closed
        if closed:
            _cut(connection)

    def _watched(self, pool: Any) -> Any:
        """The same kind of pool of connections, whose connections are known here."""
        opened = self._opened

        class Connection(pool.ConnectionCls):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                opened(self)

        return type(pool.__name__, (pool,), {"ConnectionCls": Connection})


def _cut(connection: Any) -> None:
    found = getattr(connection, "sock", None)
    if found is not None:
        with suppress(OSError):  # it has ended by itself
            found.shutdown(socket.SHUT_RDWR)
