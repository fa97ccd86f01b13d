"""Frames between servers and functions, and the authenticated sockets they travel over.

Shipped inside serverless functions: imports numpy, pyzmq and the standard library only, and pyzmq only when the first
socket or key is made.
"""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.wire.client import Client
    from dorylus.wire.connection import Connection, answer, dial, new_secret
    from dorylus.wire.frames import (
        BETWEEN_SERVERS,
        DEFAULT,
        MAGIC,
        Buffer,
        Frame,
        FrameError,
        FrameLimits,
        Refused,
        WireError,
        pack,
        unpack,
    )
    from dorylus.wire.keys import ClientKeys, RunKeys
    from dorylus.wire.peer_transport import PeerTransport
    from dorylus.wire.port import DataPort

__all__ = [
    "BETWEEN_SERVERS",
    "DEFAULT",
    "MAGIC",
    "Buffer",
    "Client",
    "ClientKeys",
    "Connection",
    "DataPort",
    "Frame",
    "FrameError",
    "FrameLimits",
    "PeerTransport",
    "Refused",
    "RunKeys",
    "WireError",
    "answer",
    "dial",
    "new_secret",
    "pack",
    "unpack",
]

__getattr__ = lazy_names(
    __name__,
    {
        "client": "Client",
        "connection": "Connection answer dial new_secret",
        "frames": "BETWEEN_SERVERS Buffer DEFAULT Frame FrameError FrameLimits MAGIC Refused WireError pack unpack",
        "keys": "ClientKeys RunKeys",
        "peer_transport": "PeerTransport",
        "port": "DataPort",
    },
)
