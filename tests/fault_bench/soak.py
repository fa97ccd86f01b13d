"""Runs of the `dorylus` program, each disturbed by one or two random faults: a line of JSON for each.

    python -m ray_bench.isolated fault_bench.soak OPTIONS

Runs are made in three places: servers on three Ray nodes, dense tasks in processes of this machine, and a graph larger
than the memory limit. A fault comes at a random moment between the start of the program and its end. A run passes
when it ends by itself with the weights of an undisturbed run, or with one sentence and a folder from which `dorylus
resume` reaches them; when nothing takes longer than its limit; and when no process, file or shared memory is left.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from dorylus.runs import read_log
from dorylus.runtime.fence import LEASE_S
from ray_bench.isolated import python_path, settle_in
from ray_bench.leaks import SERVERS, left_by_nodes
from ray_bench.network import alive, title
from ray_bench.nodes import RayNodes

EPOCHS = 20
NUM_NODES = 3
RUN_LIMIT_S = 300.0  # of one program, whatever its faults
SETTLE_S = 20.0  # in which processes of a program have to end after it
CUT_OFF_S = LEASE_S + 30.0  # the same on Ray, where a node may be cut off at the end of a run
LATER_S = 6.0  # the longest wait of a fault after the start of a process that it had to wait for
REPLACED_S = 4.0  # after which a killed node is started again, as a cloud would
MOST_RESUMES = 3
WAS_KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Options:
    """How many runs, the seed of their faults, and the places they are made in (all if empty)."""

    runs: int = 100
    seed: int = 0
    places: tuple[str, ...] = ()


@dataclass
class Outcome:
    """The result of one run. ``codes``: exit codes of the program and of `resume`; ``last_line``: of its output."""

    run: int
    place: str
    faults: list[str]
    codes: list[int] = field(default_factory=list)
    last_line: str = ""
    same_weights: bool = False
    recovered_s: list[float] = field(default_factory=list)  # for each recovery of lost servers
    left: list[str] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0
    disturbed: bool = False  # by at least one of its faults; the others came after its end

    @property
    def passed(self) -> bool:
        """Whether the weights are right, nothing is left, and there is no error."""
        return self.same_weights and not self.left and not self.error


class Program:
    """A running `dorylus` program, with its output in a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], output: Path) -> None:
        self._output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )

    def send(self, number: int) -> None:
        """A signal, to the program alone."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code. A program that does not end in time is killed; the error ends with the last of its output."""
        try:
            return self.process.wait(RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise TimeoutError(f"the program did not end within {RUN_LIMIT_S:g} s: {self.output()[-500:]}") from None

    def output(self) -> str:
        """All it has printed."""
        return self._output.read_text(errors="replace").replace("\0", "")


class Place(ABC):
    """Where runs are made: how the program is started, which faults it meets, and what it may leave."""

    name: str
    settings: Mapping[str, object]
    sizes: Mapping[str, int] = {"num_vertices": 600, "num_classes": 3, "num_features": 16, "average_degree": 8}
    settle_s = SETTLE_S

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slow = folder / "slow"
        self.store = folder / "graph"
        self.temporary = folder / "tmp"
        for each in (self.slow, self.temporary):
            each.mkdir(parents=True)
        self.undisturbed_s = 0.0
        self._expected: dict[str, bytes] = {}
        self._starts = 0

    @property
    @abstractmethod
    def faults(self) -> Mapping[str, Callable[["Disturbed"], str | None]]:
        """The faults by name. Each returns what it hit, None if the run ended before there was such a process."""

    def start(self, *words: str) -> Program:
        """The program with these arguments."""
        self._starts += 1
        command = self.command([sys.executable, "-m", "fault_bench.driver", str(self.slow), *words])
        return Program(command, self.environment(), self.folder / f"output-{self._starts}")

    def command(self, words: Sequence[str]) -> list[str]:
        """A command line that runs where the driver runs."""
        return list(words)

    def environment(self) -> dict[str, str]:
        """The environment of the program."""
        return {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder), "PYTHONPATH": python_path(),
            "TMPDIR": str(self.temporary), "XDG_CACHE_HOME": str(self.folder / "cache"), "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "torch"),
        }  # fmt: skip

    def run_folder(self, number: int) -> Path:
        """Where a run has its folder."""
        return self.folder / f"run-{number}"

    def train(self, number: int) -> Program:
        """Begin a run."""
        common = {"epochs": EPOCHS, "checkpoint-every": 3, "eval-every": 7, "seed": 1, "hidden": 16}
        flags = {**common, **self.settings, "run-dir": self.run_folder(number)}
        return self.start("train", str(self.store), "--quiet", *(f"--{k}={v}" for k, v in flags.items()))

    def save_graph(self) -> None:
        """Make the graph, where it is not there yet."""
        import dorylus

        if not self.store.exists():
            dorylus.communities(seed=0, **self.sizes).save(self.store)

    def prepare(self) -> None:
        """Make the graph, and the weights of an undisturbed run."""
        self.save_graph()
        for _ in range(2):  # the first run writes what all others use: shards, exported programs
            begun = time.monotonic()
            program = self.train(0)
            if code := program.wait():
                raise RuntimeError(f"the undisturbed run in {self.name} ended with {code}: {program.output()}")
            self.undisturbed_s = time.monotonic() - begun
            self._expected = weights(self.run_folder(0))
            self.settled()
            shutil.rmtree(self.run_folder(0))

    def has_expected(self, number: int) -> bool:
        """Whether a run ended with the bits of the undisturbed one."""
        return weights(self.run_folder(number)) == self._expected

    def settled(self) -> list[str]:
        """What is left of a run after ``settle_s``."""
        until = time.monotonic() + self.settle_s
        while (left := self.left()) and time.monotonic() < until:
            time.sleep(0.2)
        return left

    def left(self) -> list[str]:
        """Processes and temporary files of runs that have ended."""
        processes = [f"process {title(pid)[:120]}" for pid in alive() if pid != os.getpid()]
        return processes + [f"file {path.name}" for path in self.temporary.iterdir()]

    def mend(self) -> None:
        """Repair the damage of faults to files, disks and networks; remove the requests for slow tasks."""
        for path in self.slow.iterdir():
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """End the processes of the place itself, and remove its files."""
        shutil.rmtree(self.folder)


@dataclass
class Disturbed:
    """A run that faults are injected into."""

    program: Program
    chance: random.Random

    def kill_driver(self) -> str:
        self.program.send(signal.SIGKILL)
        return "driver"

    def end_driver(self) -> str:
        self.program.send(signal.SIGTERM)
        return "driver"

    def stop_driver(self) -> str:
        return self.stop(self.program.process.pid, "driver")

    def stop(self, pid: int, name: str) -> str:
        """Stop a process for 5 to 60 seconds, then continue it; it may have ended by then."""
        seconds = self.chance.uniform(5.0, 60.0)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

        def go_on() -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        timer = threading.Timer(seconds, go_on)
        timer.daemon = True
        timer.start()
        return f"{name} for {seconds:.0f} s"

    def kill_one(self, find: Callable[[], Sequence[int]], name: str) -> str | None:
        """Kill one of the processes that are found."""
        pid = self._pick(find)
        if pid is None:
            return None
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return name

    def stop_one(self, find: Callable[[], Sequence[int]], name: str) -> str | None:
        """Stop one of the processes that are found, for a while."""
        pid = self._pick(find)
        return None if pid is None else self.stop(pid, name)

    def _pick(self, find: Callable[[], Sequence[int]]) -> int | None:
        """One of the processes; if there is none yet, waits for one and a random moment more."""
        waited = False
        while self.program.process.poll() is None:
            if (pids := find()) and not waited:
                return self.chance.choice(pids)
            time.sleep(self.chance.uniform(0.0, LATER_S) if pids else 0.1)
            waited = not pids
        return None


OF_THE_DRIVER: Mapping[str, Callable[[Disturbed], str]] = {
    "kill -9 of the driver": Disturbed.kill_driver,
    "SIGTERM to the driver": Disturbed.end_driver,
    "SIGSTOP of the driver": Disturbed.stop_driver,
}


class Functions(Place):
    """Dense tasks in two processes next to the driver, by ports or in payloads."""

    name = "processes"
    settings: Mapping[str, object] = {"pool": "processes", "functions": 2, "threads": 1, "intervals": 3, "servers": 2}

    @property
    def faults(self) -> Mapping[str, Callable[[Disturbed], str | None]]:
        return {
            **OF_THE_DRIVER,
            "kill -9 of a function": lambda run: run.kill_one(self._workers, "function"),
            "SIGSTOP of a function": lambda run: run.stop_one(self._workers, "function"),
        }

    def _workers(self) -> list[int]:
        return [pid for pid in alive() if "dorylus.functions.worker" in title(pid)]


class Limited(Place):
    """A run under a memory limit that does not hold its rows, with its store and its folder on a small disk."""

    name = "memory limit"
    sizes: Mapping[str, int] = {"num_vertices": 50_000, "num_classes": 16, "num_features": 64, "average_degree": 10}
    DISK_BYTES = 1 << 30

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.disk = folder / "disk"
        self.disk.mkdir()
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(self.DISK_BYTES)
        _run("mkfs.ext4", "-q", "-O", "^has_journal", str(image))
        _run("mount", "-o", "loop", str(image), str(self.disk))
        self.store = self.disk / "graph"
        self._whole: dict[Path, bytes] = {}

    @property
    def faults(self) -> Mapping[str, Callable[[Disturbed], str | None]]:
        return {
            **OF_THE_DRIVER,
            "truncated store file": self._truncate,
            "full disk": self._fill,
        }

    def run_folder(self, number: int) -> Path:
        return self.disk / f"run-{number}"

    def prepare(self) -> None:
        """Take the least limit that the program itself names, plus 32 MiB."""
        self.save_graph()
        plan = self.start("plan-memory", str(self.store), "--hidden=64", "--memory=1MiB", "--threads=2")
        plan.wait()
        least = re.search(r"memory[= ]'?(\d+)MiB'?", plan.output())
        if least is None:
            raise RuntimeError(f"plan-memory names no limit: {plan.output()}")
        self.settings = {"threads": 2, "hidden": 64, "memory": f"{int(least[1]) + 32}MiB"}
        super().prepare()

    def train(self, number: int) -> Program:
        for old in self.disk.glob("run-*"):
            shutil.rmtree(old)
        return super().train(number)

    def mend(self) -> None:
        super().mend()
        (self.disk / "filler").unlink(missing_ok=True)
        for path, content in self._whole.items():
            times = path.stat()
            path.write_bytes(content)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        self._whole.clear()

    def left(self) -> list[str]:
        scratch = [f"scratch {path.name}" for path in self.disk.iterdir() if ".scratch" in path.name]
        return super().left() + scratch

    def close(self) -> None:
        _run("umount", str(self.disk))
        super().close()

    def _truncate(self, run: Disturbed) -> str:
        path = run.chance.choice(sorted(path for path in self.store.rglob("*") if path.stat().st_size > 4096))
        self._whole[path] = path.read_bytes()
        os.truncate(path, run.chance.randrange(len(self._whole[path])))
        return str(path.relative_to(self.store))

    def _fill(self, _: Disturbed) -> str:
        with suppress(OSError), (self.disk / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        return "disk of store and run folder"


class Ray(Place):
    """Three graph servers and two parameter servers on three Ray nodes with addresses of their own."""

    name = "ray"
    settle_s = CUT_OFF_S
    settings: Mapping[str, object] = {
        "cluster": "ray", "servers": 3, "parameter-servers": 2, "intervals": 3, "threads": 1, "deadline-s": 60,
    }  # fmt: skip

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._nodes = RayNodes(NUM_NODES, cpus=2.0)

    @property
    def faults(self) -> Mapping[str, Callable[[Disturbed], str | None]]:
        return {
            **OF_THE_DRIVER,
            "kill -9 of a graph server": lambda run: run.kill_one(self._graphs, "graph server"),
            "kill -9 of a parameter server": lambda run: run.kill_one(self._parameters, "parameter server"),
            "SIGSTOP of a graph server": lambda run: run.stop_one(self._graphs, "graph server"),
            "SIGSTOP of a parameter server": lambda run: run.stop_one(self._parameters, "parameter server"),
            "kill -9 of a node": self._kill_node,
            "cable out for 5 s": lambda run: self._cut_cable(run, 5.0),
            "cable out for 40 s": lambda run: self._cut_cable(run, 40.0),
        }

    def command(self, words: Sequence[str]) -> list[str]:
        return self._nodes.network.command(0, words)

    def environment(self) -> dict[str, str]:
        return self._nodes.environment | {"XDG_CACHE_HOME": str(self.folder / "cache")}

    def train(self, number: int) -> Program:
        self._replace_lost_nodes()
        return super().train(number)

    def left(self) -> list[str]:
        servers = [f"process {title(pid)}" for pid in alive() if title(pid).startswith(SERVERS)]
        drivers = [f"process {title(pid)[:120]}" for pid in alive() if "fault_bench.driver" in title(pid)]
        return servers + drivers + [f"file {path.name}" for path in self._nodes.scratch.iterdir()]

    def mend(self) -> None:
        super().mend()
        self._replace_lost_nodes()

    def close(self) -> None:
        self._nodes.close()
        super().close()

    def _graphs(self) -> list[int]:
        return self._servers("GraphServer")

    def _parameters(self) -> list[int]:
        return self._servers("ParameterServer")

    def _servers(self, kind: str) -> list[int]:
        return [pid for pid, its in sorted(self._nodes.servers().items()) if its == kind]

    def _kill_node(self, run: Disturbed) -> str:
        node = run.chance.randrange(1, NUM_NODES)
        self._nodes.kill_node(node)
        time.sleep(REPLACED_S)
        self._nodes.start_node(node)
        return f"node {node}"

    def _cut_cable(self, run: Disturbed, seconds: float) -> str:
        node = run.chance.randrange(1, NUM_NODES)
        self._nodes.network.cut(node)
        time.sleep(seconds)
        self._nodes.network.mend(node)
        return f"node {node}"

    def _replace_lost_nodes(self) -> None:
        """Start nodes again that Ray gave up because they were silent for too long."""
        for node in range(1, NUM_NODES):
            if not any("/raylet/raylet " in title(pid) for pid in self._nodes.network.processes(node)):
                self._nodes.kill_node(node)
                self._nodes.start_node(node)


PLACES: Mapping[str, type[Place]] = {each.name: each for each in (Ray, Functions, Limited)}
SHARES = {"ray": 4, "processes": 3, "memory limit": 3}  # of the runs, in tenths


class Soak:
    """All places, and runs in them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._chance = random.Random(options.seed)
        self._ends = ExitStack()
        self._folder = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def runs(self) -> Iterator[Outcome]:
        """All runs, place after place."""
        names = self._options.places or tuple(PLACES)
        whole = sum(SHARES[name] for name in names)
        number = 0
        for name in names:
            place = PLACES[name](self._folder / name.replace(" ", "-"))
            try:
                place.prepare()
                last = name == names[-1]
                share = self._options.runs - number if last else round(self._options.runs * SHARES[name] / whole)
                for _ in range(share):
                    number += 1
                    yield self._disturbed(place, number)
            finally:
                place.close()

    def _disturbed(self, place: Place, number: int) -> Outcome:
        """A run that a fault hit. A run that ends before its faults is repeated, with faults within its duration."""
        while True:
            outcome = self._run(place, number)
            if outcome.disturbed or not outcome.passed:
                return outcome
            place.undisturbed_s = min(place.undisturbed_s, outcome.seconds)
            shutil.rmtree(place.run_folder(number))

    def _run(self, place: Place, number: int) -> Outcome:
        chance = random.Random(self._chance.random())
        faults = [chance.choice(sorted(place.faults)) for _ in range(1 + (chance.random() < 0.25))]
        moments = sorted(chance.uniform(0.0, place.undisturbed_s) for _ in faults)
        for _ in range(chance.choice((0, 0, 1, 2))):
            (place.slow / f"{chance.uniform(1.0, 10.0):.3f}").touch()
        outcome, begun = Outcome(number, place.name, faults), time.monotonic()
        try:
            self._disturb(place, outcome, moments, chance)
        except (TimeoutError, RuntimeError, OSError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
        place.mend()
        outcome.left = place.settled()
        outcome.seconds = time.monotonic() - begun
        return outcome

    def _disturb(self, place: Place, outcome: Outcome, moments: Sequence[float], chance: random.Random) -> None:
        begun = time.monotonic()
        program = place.train(outcome.run)
        run = Disturbed(program, chance)
        done = []
        for name, moment in zip(outcome.faults, moments, strict=True):
            with suppress(subprocess.TimeoutExpired):
                program.process.wait(max(0.0, begun + moment - time.monotonic()))
            victim = place.faults[name](run) if program.process.poll() is None else None
            outcome.disturbed |= victim is not None
            done.append(f"{name} ({victim or 'ended before'}) at {moment:.1f} s")
        outcome.faults = done
        outcome.codes.append(program.wait())
        self._check_output(place, outcome, program)
        place.mend()
        while outcome.codes[-1] != 0 and len(outcome.codes) <= MOST_RESUMES and not outcome.error:
            if (place.run_folder(outcome.run) / "run.toml").exists():
                program = place.start("resume", str(place.run_folder(outcome.run)), "--quiet")
            else:  # it ended before its run folder was written
                program = place.train(outcome.run)
            outcome.codes.append(program.wait())
            if outcome.codes[-1] != 0:
                outcome.error = f"resume: {program.output()[-600:]}"
        outcome.same_weights = outcome.codes[-1] == 0 and place.has_expected(outcome.run)
        log = read_log(place.run_folder(outcome.run) / "log.jsonl")
        outcome.recovered_s = [record["seconds"] for record in log if record.get("what") == "recovered"]

    @staticmethod
    def _unhandled(place: Place, number: int) -> list[int]:
        """The exit code by SIGTERM before a run begins or after its end: nothing handles the signal then."""
        folder = place.run_folder(number)
        during = (folder / "run.toml").exists() and not (folder / "metrics.json").exists()
        return [] if during else [-signal.SIGTERM]

    def _check_output(self, place: Place, outcome: Outcome, program: Program) -> None:
        """Check that a program that failed, and was not killed, printed the reason in one paragraph."""
        code, output = outcome.codes[-1], program.output()
        if code not in (0, WAS_KILLED):
            outcome.last_line = output.strip().splitlines()[-1][:400] if output.strip() else ""
        if "Traceback (most recent call last)" in output or "*** SIG" in output:
            outcome.error = f"a traceback: {output[-1500:]}"
        elif code not in (0, 1, 2, 143, WAS_KILLED, *self._unhandled(place, outcome.run)) or (
            code in (1, 2) and "error:" not in output
        ):
            outcome.error = f"exit code {code}: {output[-600:]}"


def weights(run_dir: Path) -> dict[str, bytes]:
    """The weights that a run ended with."""
    path = run_dir / "checkpoints" / f"epoch-{EPOCHS:06d}" / "weights.safetensors"
    if not path.exists():
        return {}
    from safetensors.numpy import load_file

    return {name: array.tobytes() for name, array in sorted(load_file(path).items())}


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)!r} failed: {done.stderr.strip()!r}")


def main(options: dict[str, Any]) -> int:
    settle_in()
    with Soak(Options(**{**options, "places": tuple(options.get("places", ()))})) as soak:
        for outcome in soak.runs():
            print(json.dumps({**asdict(outcome), "passed": outcome.passed}), flush=True)
    print(json.dumps({"left_by_nodes": left_by_nodes()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
