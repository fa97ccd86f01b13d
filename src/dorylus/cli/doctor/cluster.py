"""What ``dorylus doctor --cluster ray`` finds: a survey of the nodes, and the lines of the report made from it.

A :class:`Survey` is plain data that travels as JSON. :func:`collect` starts a child process that makes one
(``doctor/ray.py``, with a ``doctor/probe.py`` on every node): Ray may block for minutes or end its process, and the
doctor must do neither. :func:`checks_of` turns a survey into checks.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import IO, Any, Self

from dorylus import units
from dorylus.cli.doctor import LOW_MEMORY_BYTES, Check

MUST_BE_THE_SAME = ("python", "ray", "dorylus")  # other packages may differ: results then differ in the last bits
CLOCK_OFF_S = 0.5
NAMED = 8  # the most that a line lists

START = (
    "start one: ray start --head --node-ip-address ADDRESS (this machine's, as other nodes reach it); or give --address"
)
TOKEN = "set RAY_AUTH_MODE=token and the cluster's RAY_AUTH_TOKEN here"
ALL_TOKENS = "start every node, and dorylus, with RAY_AUTH_MODE=token and one RAY_AUTH_TOKEN (docs/cluster.md)"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a process finds out about the machine and the environment it runs in.

    ``versions`` are those of Python and of packages, empty for what is not there; ``kernels`` the instructions that the
    compiled kernels use, or else ``kernels_error`` why they do not load. ``store`` is a digest of the manifest of the
    survey's store, or else ``store_error`` why it cannot be read. ``token``: whether Ray asks for one here.
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
    fast a big one is received; None where it is unknown."""

    dials: str
    dialled: str
    error: str = ""
    round_trip_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A cluster: its address, or why it could not be reached."""

    driver: Machine
    cluster: str = ""
    trouble: str = ""
    nodes: tuple[Node, ...] = ()
    pairs: tuple[Pair, ...] = ()
    store: str = ""  # the folder that nodes had to read, if any

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The survey that :meth:`to_dict` wrote down."""
        return cls(
            **{
                **data,
                "driver": Machine(**data["driver"]),
                "nodes": tuple(_node(each) for each in data["nodes"]),
                "pairs": tuple(Pair(**each) for each in data["pairs"]),
            }
        )


def _node(data: dict[str, Any]) -> Node:
    machine = data["machine"]
    return Node(**{**data, "machine": None if machine is None else Machine(**machine)})


START_S = 60.0
CONNECT_S = 30.0  # Ray itself gives up after 20 s where its token is refused
SURVEY_S = 300.0
END_S = 10.0
BROKEN_OFF = "the process that asks broke off"
NO_TOKEN = "InvalidAuthToken"  # as Ray's log says it
MODULE = "dorylus.cli.doctor.ray"


def collect(address: str, store: str, module: str = MODULE) -> Survey:
    """The survey of the cluster at ``address``, or else of this machine's; or why it could not be made."""
    command = [sys.executable, "-P", "-m", module, address, store]
    with tempfile.TemporaryFile("w+") as errors, _started(command, errors) as child:
        assert child.stdout is not None
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(child.stdout, lines), name="dorylus-survey", daemon=True)
        reader.start()
        patience_s = 0.0
        try:
            survey = _last_report(lines)
            patience_s = 0.0 if survey.trouble else END_S
        finally:
            _end(child, patience_s)
            reader.join(END_S)
        errors.seek(0)
        return _explained(survey, errors.read())


def _started(command: list[str], errors: IO[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)


def _last_report(lines: "queue.SimpleQueue[str]") -> Survey:
    """The last survey that the child reports in time."""
    survey = Survey(driver=Machine(versions={}))
    for stage, patience_s in (("word of our own", START_S), ("answer of Ray", CONNECT_S), ("survey", SURVEY_S)):
        try:
            line = lines.get(timeout=patience_s)
        except queue.Empty:
            return replace(survey, trouble=f"no {stage} within {patience_s:g} s")
        if not line:
            return replace(survey, trouble=f"{BROKEN_OFF}, with no {stage}")
        survey = Survey.from_dict(json.loads(line))
        if survey.trouble:
            break
    return survey


def _read(lines: IO[str], into: "queue.SimpleQueue[str]") -> None:
    for line in lines:
        into.put(line)
    into.put("")


def _end(child: "subprocess.Popen[str]", patience_s: float) -> None:
    """Wait for the child to disconnect from the cluster; kill it when the time is over."""
    try:
        child.wait(patience_s)
    except subprocess.TimeoutExpired:
        child.kill()


def _explained(survey: Survey, errors: str) -> Survey:
    """The survey with what Ray wrote into its log alone."""
    if survey.trouble and NO_TOKEN in errors:
        return replace(survey, trouble=f"the cluster does not accept our token ({NO_TOKEN})")
    if survey.trouble.startswith(BROKEN_OFF) and errors.strip():
        return replace(survey, trouble=f"{survey.trouble}: {errors.strip().splitlines()[-1][:500]}")
    return survey


def checks_of(survey: Survey, threads: int | None = None) -> list[Check]:
    """All lines; only the first where there is no cluster.

    ``threads`` are those of a graph server: all cores of this process if not given, as ``dorylus train`` has it.
    """
    first = check_cluster(survey)
    if first.status == "fail":
        return [first]
    cores = threads or len(os.sched_getaffinity(0))
    checks: list[Callable[[Survey], Check]] = [
        check_nodes, check_versions, partial(check_cores, threads=cores), check_memory, check_network, check_speed,
        check_clocks, check_token,
    ]  # fmt: skip
    return [first, *(check(survey) for check in checks + [check_store] * bool(survey.store))]


def check_cluster(survey: Survey) -> Check:
    """Whether there is a cluster, and whether it accepts the connection."""
    here = survey.driver.versions.get("ray", "")
    if not survey.trouble:
        return Check("ray", "ok", f"{here}, connected to the cluster at {survey.cluster}")
    cure = TOKEN if NO_TOKEN in survey.trouble else START
    if "ersion mismatch" in survey.trouble:
        cure = "install here what the cluster has"
    elif survey.cluster:
        cure = "see whether its nodes are overloaded, and try again"
    return Check("ray", "fail", f"{here}, but {survey.trouble}".removeprefix(", but "), cure)


def check_nodes(survey: Survey) -> Check:
    """Whether every node that Ray counts answers."""
    silent = [f"{node.name}: {node.trouble}" for node in survey.nodes if node.machine is None]
    if silent:
        return Check(
            "nodes", "fail", _some(silent), "look into Ray's logs there (session_latest/logs), or stop that node"
        )
    return Check("nodes", "ok", f"{len(survey.nodes)} alive, and all answer")


def check_versions(survey: Survey) -> Check:
    """Whether nodes have what the driver has."""
    here = survey.driver
    absent = [name for name, version in here.versions.items() if not version]
    if absent:
        return Check("versions", "fail", f"no {', '.join(absent)} here", 'pip install "dorylus[ray]"')
    wrong = [f"{node.name} has {unlike}" for node, there in _known(survey) if (unlike := _unlike(here, there, _broken))]
    odd = [f"{node.name} has {unlike}" for node, there in _known(survey) if (unlike := _unlike(here, there, _differs))]
    if wrong:
        return Check("versions", "fail", _some(wrong), f"install the same on every node: {_requirements(here, wrong)}")
    if odd:
        cure = "results may differ in their last bits; install the same on every node, on processors of one kind"
        return Check("versions", "warn", _some(odd), cure)
    same = ", ".join(f"{name} {version}" for name, version in here.versions.items())
    return Check("versions", "ok", f"{same}, kernels that use {here.kernels}: on all nodes as here")


def check_cores(survey: Survey, *, threads: int) -> Check:
    """How many graph servers there is room for."""
    each = [f"{node.name}: {node.free_cores:g} of {node.cores:g} free" for node in survey.nodes]
    free = room((node.free_cores for node in survey.nodes), threads)
    apart = min(free, sum(node.free_cores >= threads for node in survey.nodes))
    servers = f"graph server{'s' * (free != 1)} of {threads} thread{'s' * (threads > 1)}"
    found = f"{_some(each)}; room for {free} {servers}, {apart} on nodes of their own"
    small = [f"{node.name} has {node.cores:g}" for node in survey.nodes if 0 < node.cores < threads]
    if not room((node.cores for node in survey.nodes), threads):
        return Check("cores", "fail", found, "train with fewer --threads, or add nodes")
    if small:
        return Check("cores", "warn", found, f"{_some(small)}: train with fewer --threads to use all nodes")
    if not free:
        return Check("cores", "warn", found, "others use the cluster: wait for them, or train with fewer --threads")
    return Check("cores", "ok", found)


def room(cores: Iterable[float], threads: int) -> int:
    """How many graph servers fit on nodes with so many cores; parameter servers take none."""
    return sum(int(each // threads) for each in cores)


def check_memory(survey: Survey) -> Check:
    """The free memory of the nodes."""
    sizes_of_nodes, low = [], []
    for node, there in _known(survey):
        sizes = (there.free_memory_bytes, there.memory_bytes, node.object_store_bytes)
        free, whole, store = map(units.size, sizes)
        sizes_of_nodes.append(f"{node.name}: {free} of {whole} available, object store {store}")
        low += [node.name] * (there.free_memory_bytes < LOW_MEMORY_BYTES)
    if low:
        cure = f"end other programs on {_some(low)} before training on anything but a small graph"
        return Check("memory", "warn", _some(sizes_of_nodes), cure)
    return Check("memory", "ok", _some(sizes_of_nodes) or "unknown")


def check_network(survey: Survey) -> Check:
    """Whether every node can dial every other one as graph servers do."""
    lost = [pair for pair in survey.pairs if pair.error]
    if lost:
        found = (
            f"{len(lost)} of {len(survey.pairs)} connections fail: {_directions(lost)} ({lost[0].error.rstrip('.')})"
        )
        cure = "let TCP through from every node to every other one, to any port, in firewalls and security groups"
        return Check("network", "fail", found, cure)
    tried = {pair.dials for pair in survey.pairs}
    left_out = [node.name for node in survey.nodes if node.name not in tried]
    if left_out:
        return Check("network", "warn", f"not tried on {_some(left_out)}", "repair these nodes first")
    if len(tried) == 1:
        return Check("network", "ok", "the one node reaches itself")
    return Check("network", "ok", f"all {len(tried)} nodes reach each other")


def check_speed(survey: Survey) -> Check:
    """How slow the slowest connection between two nodes is; on one node, that to itself."""
    between = [pair for pair in survey.pairs if pair.dials != pair.dialled] or survey.pairs
    trips = {pair.round_trip_s: pair for pair in between if pair.round_trip_s is not None}
    speeds = {pair.bytes_per_s: pair for pair in between if pair.bytes_per_s is not None}
    if not trips:
        return Check("speed", "warn", "not known", "mend the network first")
    found = f"at worst {units.seconds(max(trips))} there and back ({_direction(trips[max(trips)])})"
    stuck = [pair for pair in between if pair.round_trip_s is not None and pair.bytes_per_s is None]
    if stuck:
        return Check(
            "speed", "warn", f"{found}; 8 MiB took too long: {_directions(stuck)}", "look for a slow or faulty link"
        )
    return Check("speed", "ok", f"{found}, {units.size(min(speeds))}/s ({_direction(speeds[min(speeds)])})")


def check_clocks(survey: Survey) -> Check:
    """Whether the nodes agree on the time of day, by which timelines place spans of different nodes."""
    known = [
        (node.name, node.clock_off_s, node.clock_round_trip_s / 2)
        for node in survey.nodes
        if node.clock_off_s is not None
    ]
    off = [f"{name} by {off_s:+.3g} s" for name, off_s, unsure_s in known if abs(off_s) - unsure_s > CLOCK_OFF_S]
    if off:
        return Check(
            "clock", "warn", f"off: {_some(off)}", "run chrony or ntpd there; timelines show spans in wrong places"
        )
    if not known:
        return Check("clock", "warn", "not known", "repair the nodes first")
    worst_s = max(abs(off_s) + unsure_s for _, off_s, unsure_s in known)
    return Check("clock", "ok", f"all within {units.seconds(worst_s)} of this machine's")


def check_token(survey: Survey) -> Check:
    """Whether the cluster asks for a token."""
    without = [node.name for node, there in _known(survey) if not there.token]
    if not without:
        return Check("token", "ok", "the cluster asks for one")
    if len(survey.nodes) == 1:
        return Check("token", "ok", "the cluster asks for none; it has one node")
    found = f"{_some(without)} ask for none: anyone who reaches their ports can run programs there"
    return Check("token", "warn", found, ALL_TOKENS)


def check_store(survey: Survey) -> Check:
    """Whether every node reads the same store there."""
    known = _known(survey)
    cannot = [f"{node.name}: {there.store_error}" for node, there in known if there.store_error]
    if cannot:
        return Check("store", "fail", _some(cannot), "put it where every node finds it under the same path")
    digests = {there.store for _, there in known} | ({survey.driver.store} - {""})
    if len(digests) > 1:
        cure = "put the same one everywhere, or a shared folder"
        return Check("store", "fail", f"{survey.store} is not the same graph on all nodes", cure)
    return Check("store", "ok", f"{survey.store}: all nodes read it")


def _known(survey: Survey) -> list[tuple[Node, Machine]]:
    return [(node, node.machine) for node in survey.nodes if node.machine is not None]


def _unlike(here: Machine, there: Machine, of_interest: Callable[[str, str], bool]) -> str:
    """What is of interest of what is not as it is here."""
    found = [
        f"{name} {version}, here {here.versions[name]}" if version else f"no {name}"
        for name, version in there.versions.items()
        if version != here.versions.get(name) and of_interest(name, version)
    ]
    if there.versions["dorylus"] and there.kernels != here.kernels and of_interest("kernels", there.kernels):
        found.append(
            f"kernels that use {there.kernels}, here {here.kernels}"
            if there.kernels
            else f"kernels that do not load ({there.kernels_error})"
        )
    return ", ".join(found)


def _broken(name: str, version: str) -> bool:
    return name in MUST_BE_THE_SAME or not version


def _differs(name: str, version: str) -> bool:
    return not _broken(name, version)


def _requirements(here: Machine, wrong: Iterable[str]) -> str:
    named = [name for name in here.versions if any(f" {name}" in each for each in wrong)] or ["dorylus"]
    return ", ".join(f"{name} {here.versions[name]}" for name in named)


def _direction(pair: Pair) -> str:
    return f"{pair.dials} → {pair.dialled}"


def _directions(pairs: Iterable[Pair]) -> str:
    return _some([_direction(pair) for pair in pairs])


def _some(items: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(items) - NAMED} more" if len(items) > NAMED else ""
    return "; ".join(items[:NAMED]) + more
