"""The pool of a graph server elsewhere: what it has to tell is kept until the driver asks for it."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dorylus.pools import Invoked, PoolHandle

Note = Callable[..., None]
MakePool = Callable[[str, Note, Callable[[Invoked], None]], PoolHandle]  # for the server at this address


@dataclass(frozen=True)
class PoolNews:
    """What a pool has done since it was last asked: what it noted, and every invocation."""

    notes: list[tuple[str, dict[str, Any]]]
    invoked: list[Invoked]


class NodePool:
    """A server's own pool."""

    def __init__(self, make: MakePool, host: str) -> None:
        self._lock = threading.Lock()
        self._notes: list[tuple[str, dict[str, Any]]] = []
        self._invoked: list[Invoked] = []
        self._made = make(host, self._note, self._took)
        self.tasks = self._made.pool

    def take_news(self) -> PoolNews:
        """What there is to tell, once."""
        with self._lock:
            news = PoolNews(self._notes, self._invoked)
            self._notes, self._invoked = [], []
            return news

    def settle(self) -> PoolNews:
        """Wait until what was asked for has come; what there is to tell then."""
        self._made.settle()
        return self.take_news()

    def figures(self) -> Mapping[str, Any]:
        """Its figures until now."""
        return self._made.figures()

    def close(self) -> None:
        """Stop it."""
        self.tasks.close()

    def _note(self, what: str, **details: Any) -> None:
        with self._lock:
            self._notes.append((what, details))

    def _took(self, invocation: Invoked) -> None:
        with self._lock:
            self._invoked.append(invocation)


def joined_figures(each: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Those of all servers as one: numbers added, words where all say the same."""
    joined: dict[str, Any] = {}
    for name in each[0] if each else ():
        found = [figures.get(name) for figures in each]
        if all(isinstance(value, int | float) for value in found):
            joined[name] = sum(found)
        else:
            joined[name] = found[0] if len(set(map(str, found))) == 1 else ", ".join(sorted(set(map(str, found))))
    return joined
