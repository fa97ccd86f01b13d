"""What many calls have in common, stored once where all processes can fetch it: bodies, versions of the weights."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


class Stored:
    """The end that stores: a thing is found again by who it is, and the few used last are held."""

    def __init__(self, put: Callable[[Any], Any], at_most: int, pack: Callable[[Any], Any] | None = None) -> None:
        self._put, self._at_most, self._pack = put, at_most, pack
        self._lock = threading.Lock()
        self._held: OrderedDict[int, tuple[object, Any]] = OrderedDict()

    def ref(self, thing: Any) -> tuple[Any, bool]:
        """Where a thing is stored, and whether it was put there just now."""
        with self._lock:
            fresh = id(thing) not in self._held
            if fresh:
                packed = thing if self._pack is None else self._pack(thing)
                # The thing is held as well: another one could have its id otherwise.
                self._held[id(thing)] = thing, self._put(packed)
            self._held.move_to_end(id(thing))
            if len(self._held) > self._at_most:
                self._held.popitem(last=False)
            return self._held[id(thing)][1], fresh


class Fetched:
    """The end that fetches, in a process that carries out one call at a time: the few used last stay at hand."""

    def __init__(self, at_most: int, unpack: Callable[[Any], Any] | None = None) -> None:
        self._at_most, self._unpack = at_most, unpack
        self._held: OrderedDict[str, Any] = OrderedDict()

    def get(self, key: str, fetch: Callable[[], Any]) -> Any:
        """What is stored under a key; ``fetch`` gets it where it is not at hand."""
        if key not in self._held:
            packed = fetch()
            self._held[key] = packed if self._unpack is None else self._unpack(packed)
        self._held.move_to_end(key)
        if len(self._held) > self._at_most:
            self._held.popitem(last=False)
        return self._held[key]
