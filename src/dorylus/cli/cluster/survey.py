"""What is known of a cluster: plain data that travels as JSON, made by whoever asks the nodes and read by the judge."""

from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a process finds out about the machine and the environment it runs in.

    ``versions`` are those of Python and of packages, empty for what is not there; ``kernels`` the instructions that the
    compiled kernels use, or else ``kernels_error`` why they do not load. ``store`` is a digest of the manifest of the
    store that was asked for, or else ``store_error`` why it cannot be read. ``token``: whether Ray asks for one here.
    """

    versions: dict[str, str]
    kernels: str = ""
    kernels_error: str = ""
    memory_bytes: int = 0
    free_memory_bytes: int = 0
    token: bool = False
    store: str = ""
    store_error: str = ""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node, by the name it has in reports. ``trouble`` says why it is not known what ``machine`` it is.

    ``clock_off_s`` is how much its time of day is ahead of the driver's, known to half of ``clock_round_trip_s``.
    """

    name: str
    cores: float
    free_cores: float
    object_store_bytes: int = 0
    machine: Machine | None = None
    trouble: str = ""
    clock_off_s: float | None = None
    clock_round_trip_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A node that dials another: why it cannot, or else how long a message takes there and back (the median), and how
    fast a big one is taken; None where that was not found out."""

    dials: str
    dialled: str
    error: str = ""
    round_trip_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A cluster: at which address, or what kept us from it."""

    driver: Machine
    cluster: str = ""
    trouble: str = ""
    nodes: tuple[Node, ...] = ()
    pairs: tuple[Pair, ...] = ()
    store: str = ""  # the folder that nodes were asked to read, if any

    def told(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def heard(cls, told: dict[str, Any]) -> Self:
        """The survey that was told."""
        return cls(
            **{
                **told,
                "driver": Machine(**told["driver"]),
                "nodes": tuple(_node(each) for each in told["nodes"]),
                "pairs": tuple(Pair(**each) for each in told["pairs"]),
            }
        )


def _node(told: dict[str, Any]) -> Node:
    machine = told["machine"]
    return Node(**{**told, "machine": None if machine is None else Machine(**machine)})
