"""Parcels and reports as they travel between sites, each in one frame."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.cluster.crew import Crew, GhostsOf
from dorylus.errors import TrainingError
from dorylus.pipeline import Kind, PeerFinished, Task
from dorylus.servers import Parcel
from dorylus.wire import Frame
from dorylus.wire.mail import MailRoom

TRAINING, EVALUATION = "training", "evaluation"


class Neighbourhood:
    """The other sites, one server each, reached by the mail of one session."""

    def __init__(self, room: MailRoom, session: int, me: int, ghosts: Mapping[int, GhostsOf], timeout_s: float) -> None:
        self._room, self._session, self._me, self._timeout_s = room, session, me, timeout_s
        self.ghosts = {server: its for server, its in ghosts.items() if server != me}

    def of(self, name: str) -> "PassElsewhere":
        """As a pass sees them."""
        return PassElsewhere(name, self.ghosts, self._post)

    def _post(self, peer: int, header: Mapping[str, Any], parts: Mapping[str, NDArray[Any]], wait: bool) -> None:
        self._room.post(peer, header, parts, self._timeout_s if wait else None, self._session)

    def receive(self, crews: Mapping[str, Crew], frame: Frame) -> None:
        """Hand what came to the pass it is for."""
        crew, header = crews[frame.header["pass"]], frame.header
        if "report" in header:
            crew.hear(PeerFinished(*header["report"]))
        else:
            crew.receive(self._me, Parcel(_task(header["task"]), _parts(frame.arrays)))


class PassElsewhere:
    """The servers elsewhere of one pass."""

    def __init__(self, name: str, ghosts: Mapping[int, GhostsOf], post: Callable[..., None]) -> None:
        self._name, self.ghosts, self._post = name, ghosts, post

    def deliver(self, peer: int, parcel: Parcel) -> None:
        """Post a parcel."""
        header = {"pass": self._name, "task": [*parcel.task[:-1], str(parcel.task.kind)]}
        self._post(peer, header, {str(number): part for number, part in enumerate(parcel.parts)}, True)

    def tell(self, report: PeerFinished) -> None:
        """Post a report to all of them."""
        for peer in self.ghosts:
            self._post(peer, {"pass": self._name, "report": list(report)}, {}, False)


def _task(entry: Any) -> Task:
    try:
        epoch, phase, interval, step, kind = entry
        return Task(int(epoch), int(phase), int(interval), int(step), Kind(kind))
    except (TypeError, ValueError) as why:
        raise TrainingError(f"a parcel of no known task came: {why}. All nodes must run the same release.") from why


def _parts(arrays: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.float32], ...]:
    return tuple(arrays[str(number)] for number in range(len(arrays)))
