"""Versions of the weights as functions ask for them: a version is one mapping, which never changes."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from dorylus.functions.program import Role, role, which
from dorylus.pools.remote.arrays import Arrays, array_of
from dorylus.wire.errors import Refused


@dataclass
class _Held:
    id: str
    weights: Mapping[str, Tensor]
    users: int = 0


class WeightVersions:
    """The versions that tasks use, and the few used last: the next task probably wants one of them, under the same id.

    Ids start with ``prefix``, so that no function takes the weights of another run for them.
    """

    def __init__(self, prefix: str, max_unused: int = 4) -> None:
        self._prefix, self._max_unused = prefix, max_unused
        self._lock = threading.Lock()
        self._by_identity: OrderedDict[int, _Held] = OrderedDict()
        self._by_id: dict[str, _Held] = {}
        self._made = 0

    def use(self, weights: Mapping[str, Tensor]) -> str:
        """The id of this version, which stays until as many have let go of it."""
        with self._lock:
            held = self._by_identity.get(id(weights))
            if held is None:
                held = _Held(f"{self._prefix}-{self._made}", weights)
                self._made += 1
                self._by_identity[id(weights)] = self._by_id[held.id] = held
            held.users += 1
            self._by_identity.move_to_end(id(weights))
            return held.id

    def let_go(self, version: str) -> None:
        """One user less; of the versions without any, the oldest are forgotten."""
        with self._lock:
            self._by_id[version].users -= 1
            unused = [held for held in self._by_identity.values() if not held.users]
            for held in unused[: max(0, len(unused) - self._max_unused)]:
                del self._by_identity[id(held.weights)], self._by_id[held.id]

    def get(self, version: str, names: list[str]) -> Arrays:
        """Some weights of a version, under the names programs know them by."""
        with self._lock:
            held = self._by_id.get(version)
        if held is None:
            raise Refused(f"no task uses version {version[:100]} of the weights any more.")
        if unknown := [name for name in names if role(name) is not Role.WEIGHT or which(name) not in held.weights]:
            raise Refused(f"version {version} of the weights has no {', '.join(unknown)[:1000]}.")
        return {name: array_of(held.weights[which(name)]) for name in names}

    def __len__(self) -> int:
        return len(self._by_id)
