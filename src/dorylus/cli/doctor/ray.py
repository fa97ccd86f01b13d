"""A survey of a Ray cluster, taken by a probe on every node.

    python -m dorylus.cli.doctor.ray ADDRESS STORE

prints what it knows as a line of JSON: before it connects to Ray, once it is connected, and at the end. It is a
process of its own: Ray waits for minutes where no cluster answers, and at times ends the process it is in.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dorylus.cli.doctor import probe
from dorylus.cli.doctor.cluster import Machine, Node, Pair, Survey
from dorylus.pools import connected
from dorylus.wire import new_secret

ANSWER_S = 60.0  # for a node to start a process and check its machine
CLOCK_S, CLOCKS = 5.0, 5
DIAL_S = 45.0  # more than a handshake may take
SEND_S = 60.0


def main(address: str, store: str) -> None:
    """Connects and makes the survey, printing it at each stage."""
    report = _channel()
    survey = Survey(driver=Machine(**probe.machine(store)), store=store)
    report(survey)
    try:
        ray = connected(address or None, "a look at a cluster")
    except Exception as why:
        report(replace(survey, trouble=_in_a_line(why)))
        return
    survey = replace(survey, cluster=ray.get_runtime_context().gcs_address)
    report(survey)
    report(take(ray, survey))
    ray.shutdown()


def take(ray: Any, begun: Survey) -> Survey:
    """The survey, with the answers of the nodes of the cluster that Ray is connected to."""
    alive = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: str(node["NodeManagerAddress"]))
    probes = _probes(ray, [node["NodeID"] for node in alive])
    machines = _answers(ray, [each.machine.remote(begun.store) for each in probes], ANSWER_S)
    nodes = [
        _clocked(ray, each, node) if node.machine else node
        for each, node in zip(probes, _nodes(alive, machines), strict=True)
    ]
    there = [number for number, node in enumerate(nodes) if node.machine and node.machine.versions["dorylus"]]
    hosts = [alive[number]["NodeManagerAddress"] for number in there]
    pairs = _pairs(ray, [probes[number] for number in there], hosts, [nodes[number].name for number in there])
    return replace(begun, nodes=tuple(nodes), pairs=tuple(pairs))


def _probes(ray: Any, nodes: Sequence[str]) -> list[Any]:
    """A probe on each of these nodes, which takes none of its cores."""
    from ray import cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    cloudpickle.register_pickle_by_value(probe)  # type: ignore[no-untyped-call]  # Dorylus may not be there
    try:
        actor = ray.remote(probe.Probe).options
        places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
        return [actor(num_cpus=0, max_restarts=0, scheduling_strategy=place).remote() for place in places]
    finally:
        cloudpickle.unregister_pickle_by_value(probe)  # type: ignore[no-untyped-call]


def _answers(ray: Any, calls: Sequence[Any], patience_s: float) -> list[tuple[Any, str]]:
    """(answer, "") of each, or (None, why there is none)."""
    done = set(ray.wait(list(calls), num_returns=len(calls), timeout=patience_s)[0]) if calls else set()
    return [_answer(ray, each) if each in done else (None, f"no answer within {patience_s:g} s") for each in calls]


def _answer(ray: Any, call: Any) -> tuple[Any, str]:
    try:
        return ray.get(call, timeout=CLOCK_S), ""
    except Exception as why:
        return None, _in_a_line(getattr(why, "cause", None) or why, last=2)


def _nodes(alive: Sequence[dict[str, Any]], machines: Sequence[tuple[Any, str]]) -> list[Node]:
    from ray._private.state import available_resources_per_node  # of one node, which no public function of Ray returns

    free = available_resources_per_node()  # type: ignore[no-untyped-call]
    names = Counter(node["NodeManagerAddress"] for node in alive)
    return [
        Node(
            name=address if names[address := node["NodeManagerAddress"]] == 1 else f"{address} ({node['NodeID'][:6]})",
            cores=node["Resources"].get("CPU", 0.0),
            free_cores=free.get(node["NodeID"], {}).get("CPU", 0.0),
            object_store_bytes=int(node["Resources"].get("object_store_memory", 0)),
            machine=Machine(**machine) if machine else None,
            trouble=trouble,
        )
        for node, (machine, trouble) in zip(alive, machines, strict=True)
    ]


def _clocked(ray: Any, there: Any, node: Node) -> Node:
    """The node with its time of day: of a few looks, the one that took least, in the middle of which it was."""
    looks = []
    for _ in range(CLOCKS):
        begun, stood = time.time(), time.perf_counter()
        its, trouble = _answer(ray, there.clock.remote())
        if trouble:
            break
        took_s = time.perf_counter() - stood
        looks.append((took_s, its - (begun + took_s / 2)))
    return replace(node, clock_round_trip_s=min(looks)[0], clock_off_s=min(looks)[1]) if looks else node


def _pairs(ray: Any, probes: Sequence[Any], hosts: Sequence[str], names: Sequence[str]) -> list[Pair]:
    """Every node dials every node; itself too, as two servers may share it."""
    secret, numbers = new_secret(), range(len(probes))
    calls = [each.listen.remote(hosts[number], secret, number) for number, each in enumerate(probes)]
    ports = _answers(ray, calls, ANSWER_S)
    open_at = {number: (hosts[number], port) for number, (port, trouble) in enumerate(ports) if not trouble}
    dialled = _answers(ray, [each.dial.remote(open_at, secret, number) for number, each in enumerate(probes)], DIAL_S)
    # Each begins with another peer, so that no node receives from all at once.
    turns = [[(me + step) % len(probes) for step in numbers] for me in numbers]
    sent = _answers(ray, [each.send.remote(turn) for each, turn in zip(probes, turns, strict=True)], SEND_S)
    return [
        Pair(dials=names[me], dialled=names[peer], **_came_of(peer, ports[peer], dialled[me], sent[me]))
        for me in numbers
        for peer in numbers
    ]


def _came_of(peer: int, port: tuple[Any, str], dialled: tuple[Any, str], sent: tuple[Any, str]) -> dict[str, Any]:
    """What one node found out about its connection to another."""
    if port[1]:
        return {"error": f"it cannot listen: {port[1]}"}
    if dialled[1]:
        return {"error": dialled[1]}
    return {**dialled[0][peer], "bytes_per_s": (sent[0] or {}).get(peer)}


def _channel() -> Callable[[Survey], None]:
    """A function that prints a survey to the parent process; all other output goes to stderr."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def report(survey: Survey) -> None:
        print(json.dumps(survey.to_dict()), file=channel, flush=True)

    return report


def _in_a_line(error: BaseException, last: int = 0) -> str:
    """The message of an error, or only its last lines: Ray's begin with the whole traceback."""
    lines = str(error).strip().splitlines()[-last:] or [type(error).__name__]
    return " ".join(" ".join(lines).split())[:500]


if __name__ == "__main__":
    main(*sys.argv[1:])
