"""What is well with a cluster and what is not: a survey in, the lines of the report out."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from dorylus.cli.cluster.survey import NO_TOKEN, Machine, Node, Pair, Survey
from dorylus.cli.doctor import LOW_MEMORY_BYTES, Check
from dorylus.report import units

MUST_BE_THE_SAME = ("python", "ray", "dorylus")  # of the others a difference shows in the last bits
CLOCK_OFF_S = 0.5
NAMED = 8  # the most that a line lists

START = (
    "start one: ray start --head --node-ip-address ADDRESS (this machine's, as other nodes reach it); or give --address"
)
TOKEN = "set RAY_AUTH_MODE=token and the cluster's RAY_AUTH_TOKEN here"
ALL_TOKENS = "start every node, and dorylus, with RAY_AUTH_MODE=token and one RAY_AUTH_TOKEN (docs/cluster.md)"


def judged(survey: Survey, threads: int | None = None) -> list[Check]:
    """All lines; only the first where there is no cluster.

    ``threads`` are those of a graph server: all cores of this process if not given, as ``dorylus train`` has it.
    """
    first = check_cluster(survey)
    if first.status == "fail":
        return [first]
    wanted = threads or len(os.sched_getaffinity(0))
    checks: list[Callable[[Survey], Check]] = [
        check_nodes, check_versions, partial(check_cores, threads=wanted), check_memory, check_network, check_speed,
        check_clocks, check_token,
    ]  # fmt: skip
    return [first, *(check(survey) for check in checks + [check_store] * bool(survey.store))]


def check_cluster(survey: Survey) -> Check:
    """Whether there is one, and whether it lets us in."""
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
    wrong = [f"{node.name} has {told}" for node, there in _known(survey) if (told := _unlike(here, there, _broken))]
    odd = [f"{node.name} has {told}" for node, there in _known(survey) if (told := _unlike(here, there, _differs))]
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
    """What memory the nodes have left."""
    told, low = [], []
    for node, there in _known(survey):
        sizes = (there.free_memory_bytes, there.memory_bytes, node.object_store_bytes)
        free, whole, store = map(units.size, sizes)
        told.append(f"{node.name}: {free} of {whole} available, object store {store}")
        low += [node.name] * (there.free_memory_bytes < LOW_MEMORY_BYTES)
    if low:
        cure = f"end other programs on {_some(low)} before training on anything but a small graph"
        return Check("memory", "warn", _some(told), cure)
    return Check("memory", "ok", _some(told) or "unknown")


def check_network(survey: Survey) -> Check:
    """Whether every node can dial every other one as graph servers do."""
    lost = [pair for pair in survey.pairs if pair.error]
    if lost:
        found = f"{len(lost)} of {len(survey.pairs)} ways are shut: {_ways(lost)} ({lost[0].error.rstrip('.')})"
        cure = "let TCP through from every node to every other one, to any port, in firewalls and security groups"
        return Check("network", "fail", found, cure)
    tried = {pair.dials for pair in survey.pairs}
    left_out = [node.name for node in survey.nodes if node.name not in tried]
    if left_out:
        return Check("network", "warn", f"not tried on {_some(left_out)}", "mend what is said of these nodes first")
    if len(tried) == 1:
        return Check("network", "ok", "the one node reaches itself")
    return Check("network", "ok", f"all {len(tried)} nodes reach each other")


def check_speed(survey: Survey) -> Check:
    """How slow the slowest way between two nodes is; on one node, the way to itself."""
    between = [pair for pair in survey.pairs if pair.dials != pair.dialled] or survey.pairs
    trips = {pair.round_trip_s: pair for pair in between if pair.round_trip_s is not None}
    speeds = {pair.bytes_per_s: pair for pair in between if pair.bytes_per_s is not None}
    if not trips:
        return Check("speed", "warn", "not known", "mend the network first")
    found = f"at worst {units.seconds(max(trips))} there and back ({_way(trips[max(trips)])})"
    stuck = [pair for pair in between if pair.round_trip_s is not None and pair.bytes_per_s is None]
    if stuck:
        return Check("speed", "warn", f"{found}; 8 MiB took too long: {_ways(stuck)}", "look for a slow or faulty link")
    return Check("speed", "ok", f"{found}, {units.size(min(speeds))}/s ({_way(speeds[min(speeds)])})")


def check_clocks(survey: Survey) -> Check:
    """Whether the nodes agree on the time of day, by which spans of different nodes are shown side by side."""
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
        return Check("clock", "warn", "not known", "mend what is said of the nodes first")
    worst_s = max(abs(off_s) + unsure_s for _, off_s, unsure_s in known)
    return Check("clock", "ok", f"all within {units.seconds(worst_s)} of this machine's")


def check_token(survey: Survey) -> Check:
    """Whether the cluster asks who comes."""
    without = [node.name for node, there in _known(survey) if not there.token]
    if not without:
        return Check("token", "ok", "the cluster asks for one")
    if len(survey.nodes) == 1:
        return Check("token", "ok", "the cluster asks for none; it has one node")
    found = f"{_some(without)} ask for none: whoever reaches their ports can run programs there"
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
    named = [name for name in here.versions if any(f" {name}" in told for told in wrong)] or ["dorylus"]
    return ", ".join(f"{name} {here.versions[name]}" for name in named)


def _way(pair: Pair) -> str:
    return f"{pair.dials} → {pair.dialled}"


def _ways(pairs: Iterable[Pair]) -> str:
    return _some([_way(pair) for pair in pairs])


def _some(told: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(told) - NAMED} more" if len(told) > NAMED else ""
    return "; ".join(told[:NAMED]) + more
