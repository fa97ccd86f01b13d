"""What is known of a cluster: plain data that travels as JSON, made by whoever asks the nodes and read by the judge.

Has a survey taken by a child process, which may hang or die of what it meets: the doctor must not.
"""

import json
import queue
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass, replace
from typing import IO, Any, Self


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


START_S = 60.0
CONNECT_S = 30.0  # Ray itself gives up after 20 s where its token is refused
SURVEY_S = 300.0
END_S = 10.0
BROKEN_OFF = "the process that asks broke off"
NO_TOKEN = "InvalidAuthToken"  # as Ray's log says it
MODULE = "dorylus.cli.cluster.ray"


def collect(address: str, store: str, module: str = MODULE) -> Survey:
    """The survey of the cluster at ``address``, or else of this machine's; or what kept us from taking it."""
    command = [sys.executable, "-P", "-m", module, address, store]
    with tempfile.TemporaryFile("w+") as errors, _started(command, errors) as child:
        assert child.stdout is not None
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(child.stdout, lines), name="dorylus-survey", daemon=True)
        reader.start()
        patience_s = 0.0
        try:
            survey = _heard(lines)
            patience_s = 0.0 if survey.trouble else END_S
        finally:
            _end(child, patience_s)
            reader.join(END_S)
        errors.seek(0)
        return _explained(survey, errors.read())


def _started(command: list[str], errors: IO[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)


def _heard(lines: "queue.SimpleQueue[str]") -> Survey:
    """What the child tells last, of what it tells in time."""
    survey = Survey(driver=Machine(versions={}))
    for wanted, patience_s in (("word of our own", START_S), ("answer of Ray", CONNECT_S), ("survey", SURVEY_S)):
        try:
            line = lines.get(timeout=patience_s)
        except queue.Empty:
            return replace(survey, trouble=f"no {wanted} within {patience_s:g} s")
        if not line:
            return replace(survey, trouble=f"{BROKEN_OFF}, with no {wanted}")
        survey = Survey.heard(json.loads(line))
        if survey.trouble:
            break
    return survey


def _read(lines: IO[str], into: "queue.SimpleQueue[str]") -> None:
    for line in lines:
        into.put(line)
    into.put("")


def _end(child: "subprocess.Popen[str]", patience_s: float) -> None:
    """Let it take its leave of the cluster, if it is worth the wait."""
    try:
        child.wait(patience_s)
    except subprocess.TimeoutExpired:
        child.kill()


def _explained(survey: Survey, errors: str) -> Survey:
    """With what Ray told its log alone."""
    if survey.trouble and NO_TOKEN in errors:
        return replace(survey, trouble=f"the cluster does not take our token ({NO_TOKEN})")
    if survey.trouble.startswith(BROKEN_OFF) and errors.strip():
        return replace(survey, trouble=f"{survey.trouble}: {errors.strip().splitlines()[-1][:500]}")
    return survey
