"""The weight stash: versions of the weights that intervals in flight still need.

An interval's backward pass must differentiate the weights its forward pass used, however many updates came between.
So the version it first met is pinned until its weight update, and freed when the last interval lets go of it.
"""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from dorylus.errors import TrainingError

T = TypeVar("T")


class Version(NamedTuple):
    """Weights by the number of their last update, and by how many updates to come they have been moved on."""

    number: int
    ahead: int = 0

    def __str__(self) -> str:
        return f"version {self.number}" + (f" moved on by {self.ahead}" if self.ahead else "")


@dataclass
class _Held(Generic[T]):
    weights: T
    pins: int = 0


class Stash(Generic[T]):
    """Reference-counted versions of the weights on one parameter server; its length is the number of pins held."""

    def __init__(self) -> None:
        self._pins: dict[tuple[int, int], Version] = {}
        self._versions: dict[Version, _Held[T]] = {}

    def pin(self, interval: int, epoch: int, version: Version, weights: T) -> None:
        """Keep a version for an interval until it is released; ``weights`` are what the version stands for."""
        if (interval, epoch) in self._pins:
            raise TrainingError(
                f"interval {interval} pins {version} for epoch {epoch}, but holds "
                f"{self._pins[interval, epoch]} for it: an interval uses one version in an epoch. Release it first."
            )
        self._pins[interval, epoch] = version
        self._versions.setdefault(version, _Held(weights)).pins += 1

    def get(self, interval: int, epoch: int) -> tuple[Version, T]:
        """The version an interval has pinned for an epoch: its name and its weights."""
        version = self._pinned(interval, epoch)
        return version, self._versions[version].weights

    def release(self, interval: int, epoch: int) -> None:
        """Let go of an interval's version; with its last pin the version goes."""
        version = self._pinned(interval, epoch)
        del self._pins[interval, epoch]
        held = self._versions[version]
        held.pins -= 1
        if not held.pins:
            del self._versions[version]

    def versions(self) -> set[Version]:
        """The versions held."""
        return set(self._versions)

    def __len__(self) -> int:
        return len(self._pins)

    def _pinned(self, interval: int, epoch: int) -> Version:
        try:
            return self._pins[interval, epoch]
        except KeyError:
            raise TrainingError(
                f"interval {interval} has no version pinned for epoch {epoch} here: one is pinned when it first pulls "
                "and released by its weight update. Pull before, and finish once."
            ) from None
