"""Runs on three Ray nodes, each with one misdeed at a random moment: a line of JSON for each.

    python -m ray_bench.isolated ray_bench.chaos OPTIONS

A server's process is killed, or a whole node, which is replaced a few seconds later, or a node's cable is pulled for
five seconds. OPTIONS is JSON: see :class:`Options`. The first line tells of a run without any misdeed.
"""

import json
import os
import queue
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from ray_bench.isolated import settle_in
from ray_bench.leaks import left_by_nodes
from ray_bench.network import alive, title
from ray_bench.nodes import RayNodes

NUM_NODES = 3
REPLACED_S = 4.0  # after which a killed node is started again, as a cloud would
START_S = 120.0
IDLE_S = 3.0
NONE = "none"


@dataclass(frozen=True)
class Options:
    """How many runs, the seed of their misdeeds, which of them may come, and how a run is made."""

    runs: int = 30
    seed: int = 0
    misdeeds: tuple[str, ...] = ("graph server", "parameter server", "node", "cable")
    epochs: int = 40
    cpus: float = 2.0
    cut_s: float = 5.0  # how long a cable is out
    limit_s: float = 240.0  # of one run


@dataclass
class Told:
    """What came of one run; times count from the misdeed."""

    run: int
    misdeed: str
    victim: str = ""
    at_epoch: int = 0
    noticed_s: float | None = None
    recovered_s: float | None = None
    faults: list[str] = field(default_factory=list)
    furthest: float | None = None
    left: list[str] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0


class Driver:
    """The driver on the head, and what it tells."""

    def __init__(self, nodes: RayNodes, folder: Path, options: Options) -> None:
        words = (str(folder), str(len(nodes)), json.dumps({"epochs": options.epochs}))
        self._process = nodes.drive("ray_bench.chaos_driver", *words)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def start(self) -> None:
        """Have it begin with a run."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def next(self, until: float, idle: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The next thing it tells of; while it tells nothing, something else is done now and then."""
        while True:
            try:
                line = self._lines.get(timeout=IDLE_S)
            except queue.Empty:
                if time.monotonic() > until:
                    raise TimeoutError("the driver told nothing in time.") from None
                idle()
                continue
            if not line:
                raise TimeoutError("the driver has ended.")
            if line.startswith('{"kind"'):  # Ray prints there too
                return dict(json.loads(line))

    def explain(self) -> None:
        """Have it print where it is stuck."""
        self._process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


class Bench:
    """Nodes and a driver, made anew after a run that got stuck."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ends = ExitStack()
        folder = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        self.nodes = self._ends.enter_context(RayNodes(NUM_NODES, cpus=options.cpus))
        self.driver = Driver(self.nodes, folder, options)
        self.driver.next(time.monotonic() + START_S)
        self.processes: Counter[str] | None = None  # after a run without misdeeds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def run(self, number: int, misdeed: str, moment: tuple[int, float], misdeeds: "Misdeeds") -> Told:
        """One run, with a misdeed so many seconds after so many epochs."""
        told, begun = Told(number, misdeed), time.monotonic()
        self.driver.start()
        ends: list[float] = []
        done_at = None
        while (event := self.driver.next(begun + self._options.limit_s, self._replace))["kind"] != "ended":
            if event["kind"] == "epoch":
                ends.append(event["at"])
            elif event["what"] == "fault":
                told.faults.append(event["error"])
                if done_at is not None and told.noticed_s is None:
                    told.noticed_s = event["at"] - done_at
            if misdeed != NONE and done_at is None and len(ends) >= moment[0]:
                time.sleep(moment[1])
                done_at, told.at_epoch = time.monotonic(), len(ends) + 1
                told.victim = misdeeds.commit(misdeed)
        told.furthest, told.error, told.left = event.get("furthest"), event.get("error", ""), event["left"]
        told.recovered_s = _went_on(ends, done_at)
        told.left += self._tidied()
        told.seconds = time.monotonic() - begun
        return told

    def _replace(self) -> None:
        """Start nodes again that Ray has given up, as it does when they are silent for too long."""
        for node in range(1, NUM_NODES):
            if not any("/raylet/raylet " in title(pid) for pid in self.nodes.network.processes(node)):
                self.nodes.kill_node(node)
                self.nodes.start_node(node)

    def _tidied(self) -> list[str]:
        """What runs on the nodes that did not before."""
        self._replace()
        until = time.monotonic() + 10
        while True:
            now = Counter(_kind(title(pid)) for node in range(NUM_NODES) for pid in self.nodes.network.processes(node))
            now.pop("ray::IDLE", None)
            self.processes = self.processes or now
            more = [f"{count} x {kind}" for kind, count in (now - self.processes).items()]
            if not more or time.monotonic() > until:
                return more
            time.sleep(0.2)


class Misdeeds:
    """What is done, and to whom, at random."""

    def __init__(self, nodes: RayNodes, chance: random.Random, cut_s: float) -> None:
        self._nodes, self._chance, self._cut_s = nodes, chance, cut_s
        self._known: Mapping[str, Callable[[], str]] = {
            "graph server": lambda: self._kill_server("GraphServer"),
            "parameter server": lambda: self._kill_server("ParameterServer"),
            "node": self._kill_node,
            "cable": self._cut_cable,
        }

    def commit(self, name: str) -> str:
        """Do that; gives who suffered it."""
        return self._known[name]()

    def _kill_server(self, kind: str) -> str:
        pid = self._chance.choice([pid for pid, its in sorted(self._nodes.servers().items()) if its == kind])
        where = self._nodes.node_of(pid)
        os.kill(pid, signal.SIGKILL)
        return f"on node {where}"

    def _kill_node(self) -> str:
        node = self._chance.randrange(1, len(self._nodes))
        victims = Counter(self._nodes.servers(node).values())
        self._nodes.kill_node(node)
        time.sleep(REPLACED_S)
        self._nodes.start_node(node)
        return f"node {node} with {_counted(victims)}"

    def _cut_cable(self) -> str:
        node = self._chance.randrange(len(self._nodes))
        victims = Counter(self._nodes.servers(node).values())
        self._nodes.network.cut(node)
        time.sleep(self._cut_s)
        self._nodes.network.mend(node)
        return f"node {node} with {_counted(victims)}"


def runs(options: Options) -> Iterator[Told]:
    """All runs, the one without a misdeed first; on nodes made anew after one that got stuck."""
    chance = random.Random(options.seed)
    number = 1
    while number <= options.runs:
        with Bench(options) as bench:
            misdeeds = Misdeeds(bench.nodes, chance, options.cut_s)
            yield bench.run(0, NONE, (0, 0.0), misdeeds)
            stuck = False
            while number <= options.runs and not stuck:
                misdeed = chance.choice(options.misdeeds)
                moment = chance.randrange(options.epochs - 2), chance.uniform(0.0, 0.1)
                try:
                    yield bench.run(number, misdeed, moment, misdeeds)
                except (TimeoutError, RuntimeError) as why:
                    bench.driver.explain()
                    stuck = True
                    yield Told(number, misdeed, error=str(why))
                number += 1


def _went_on(ends: list[float], since: float | None) -> float | None:
    """When training went on after a misdeed: the end of the longest wait for an epoch."""
    if since is None or not ends or ends[-1] < since:
        return None
    later = [since, *(end for end in ends if end > since)]
    return max((after - before, after - since) for before, after in pairwise(later))[1]


def _counted(victims: Counter[str]) -> str:
    return " and ".join(f"{count} {kind}" for kind, count in sorted(victims.items())) or "no server"


def _kind(name: str) -> str:
    """What sort of process that is: its program, without what differs from start to start."""
    return name.split(" --")[0].split(".call")[0][-80:]


if __name__ == "__main__":
    settle_in()
    for told in runs(Options(**json.loads(sys.argv[1]))):
        print(json.dumps(asdict(told)), flush=True)
    print(json.dumps({"left_by_nodes": left_by_nodes()}), flush=True)
    sys.exit(len(alive()) > 1)
