"""Frames between servers and functions, and the authenticated sockets they travel over.

Shipped inside serverless functions: imports numpy, pyzmq and the standard library only, and pyzmq not before a socket
or a key is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dorylus.wire.errors import FrameError, Refused, WireError
from dorylus.wire.frames import Frame, Limits, pack, unpack

if TYPE_CHECKING:
    from dorylus.wire.client import Client
    from dorylus.wire.keys import ClientKeys, RunKeys
    from dorylus.wire.port import DataPort

__all__ = [
    "Client", "ClientKeys", "DataPort", "Frame", "FrameError", "Limits", "Refused", "RunKeys", "WireError",
    "pack", "unpack",
]  # fmt: skip

_HOME_OF = {"Client": "client", "ClientKeys": "keys", "DataPort": "port", "RunKeys": "keys"}


def __getattr__(name: str) -> Any:
    """What needs pyzmq is loaded when first used."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dorylus.wire' has no attribute {name!r}")
    return getattr(import_module(f"dorylus.wire.{_HOME_OF[name]}"), name)
