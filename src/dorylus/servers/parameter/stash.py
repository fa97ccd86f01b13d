"""The weight stash: versions of the weights that intervals in flight still need.

An interval's backward pass must differentiate the weights its forward pass used, however many updates came between.
So the version that it first pulled is pinned until its weight update. A version is freed when its last pin is released.
"""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from dorylus.errors import TrainingError

T = TypeVar("T")


class Version(NamedTuple):
    """What identifies weights: the number of their last update, and for how many further updates they are predicted."""

    number: int
    ahead: int = 0

    def __str__(self) -> str:
        return f"version {self.number}" + (f" predicted {self.ahead} updates ahead" if self.ahead else "")


@dataclass
class _PinnedWeights(Generic[T]):
    weights: T
    pins: int = 0


class Stash(Generic[T]):
    """Reference-counted versions of the weights on one parameter server; its length is the number of pins held."""

    def __init__(self) -> None:
        self._pins: dict[tuple[int, int], Version] = {}
        self._versions: dict[Version, _PinnedWeights[T]] = {}

    def pin(self, interval: int, epoch: int, version: Version, weights: T) -> None:
        """Keep a version, which has these weights, for an interval until it is released."""
        if (interval, epoch) in self._pins:
            raise TrainingError(
                f"interval {interval} pins {version} for epoch {epoch}, but holds "
                f"{self._pins[interval, epoch]} for it: an interval uses one version in an epoch. Release it first."
            )
        self._pins[interval, epoch] = version
        self._versions.setdefault(version, _PinnedWeights(weights)).pins += 1

    def get(self, interval: int, epoch: int) -> tuple[Version, T]:
        """The version that an interval has pinned for an epoch, and its weights."""
        version = self._pinned(interval, epoch)
        return version, self._versions[version].weights

    def release(self, interval: int, epoch: int) -> None:
        """Release an interval's version; the version is freed with its last pin."""
        version = self._pinned(interval, epoch)
        del self._pins[interval, epoch]
        pinned = self._versions[version]
        pinned.pins -= 1
        if not pinned.pins:
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
                f"interval {interval} has no version pinned for epoch {epoch} here: its first pull pins one, and "
                "its weight update releases it. Pull first, and finish once."
            ) from None
