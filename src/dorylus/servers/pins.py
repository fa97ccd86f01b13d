"""Which parameter server stashes the weights of which interval."""

from collections import Counter
from collections.abc import Sequence

from dorylus.servers.parameter_server import ParameterServer, Weights
from dorylus.servers.stash import Version


class Pins:
    """The homes of the intervals in flight: each is served by the one server it first talked to.

    ``most`` and ``most_versions`` are the largest numbers of pins, and of different versions pinned, there ever were.
    """

    def __init__(self, servers: Sequence[ParameterServer]) -> None:
        self._servers = servers
        self._homes: dict[tuple[int, int], ParameterServer] = {}
        self._versions: Counter[Version] = Counter()
        self.most = self.most_versions = 0

    def __contains__(self, at: tuple[int, int]) -> bool:
        return at in self._homes

    def pin(self, interval: int, epoch: int, ahead: int = 0) -> None:
        """Pin the latest version, moved on by so many updates, on the first server with the fewest pins."""
        home = min(self._servers, key=lambda server: len(server.stash))
        version = Version(home.version, ahead)
        home.stash.pin(interval, epoch, version, home.ahead(ahead))
        self._homes[interval, epoch] = home
        self._versions[version] += 1
        self.most = max(self.most, len(self._homes))
        self.most_versions = max(self.most_versions, len(self._versions))

    def pinned(self, interval: int, epoch: int) -> tuple[Version, Weights]:
        """The version an interval has pinned, and its weights."""
        return self._homes[interval, epoch].stash.get(interval, epoch)

    def release(self, interval: int, epoch: int) -> None:
        """Let go of an interval's version, if it has one: an interval without dense tasks never pulls."""
        home = self._homes.pop((interval, epoch), None)
        if home is None:
            return
        version, _ = home.stash.get(interval, epoch)
        home.stash.release(interval, epoch)
        self._versions[version] -= 1
        if not self._versions[version]:
            del self._versions[version]

    def clear(self) -> None:
        """Release all."""
        for interval, epoch in list(self._homes):
            self.release(interval, epoch)
