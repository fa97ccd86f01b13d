"""Kill training with SIGKILL at random moments, resume it, and compare the final weights with an uninterrupted run's.

    python -m benchmarks.kill_resume [--kills 20] [--epochs 400] [--model gcn]

A kill counts only when the last epoch's checkpoint was not there yet: a process that is merely closing down has nothing
left to resume, and would pass whatever resuming does.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dorylus

LIMIT_S = 300.0  # for any one process
POLL_S = 0.002


@dataclass(frozen=True, kw_only=True)
class Job:
    """The run that is trained again and again."""

    store: Path
    model: str
    epochs: int
    checkpoint_every: int

    def start(self, run_dir: Path) -> subprocess.Popen[str]:
        """`dorylus train` in a process of its own."""
        settings = {"epochs": self.epochs, "checkpoint-every": self.checkpoint_every, "seed": 1, "run-dir": run_dir}
        flags = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
        return _dorylus("train", str(self.store), "--model", self.model, *flags)

    def last_checkpoint(self, run_dir: Path) -> Path:
        """Where the finished run's weights are."""
        return run_dir / "checkpoints" / f"epoch-{self.epochs:06d}"


def _dorylus(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dorylus.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(child: subprocess.Popen[str], doing: str) -> None:
    """Wait for a child that must succeed."""
    output, _ = child.communicate(timeout=LIMIT_S)
    if child.returncode != 0:
        raise SystemExit(f"{doing} ended with code {child.returncode}:\n{output}")


def checkpoints(run_dir: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted((run_dir / "checkpoints").glob("epoch-*"))


def final_weights(run_dir: Path, job: Job) -> bytes:
    """The bytes of the weights after the last epoch."""
    last = job.last_checkpoint(run_dir)
    if not last.exists():
        raise SystemExit(f"{last} is missing; there are only {[path.name for path in checkpoints(run_dir)]}")
    return (last / "weights.safetensors").read_bytes()


def wait_for(path: Path, child: subprocess.Popen[str]) -> float:
    """The moment at which a file or folder of the run appears."""
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        if child.poll() is not None or time.monotonic() > deadline:
            finish(child, "training")
            raise SystemExit(f"{path} never appeared")
        time.sleep(POLL_S)
    return time.monotonic()


def uninterrupted(job: Job, run_dir: Path) -> tuple[bytes, float]:
    """The weights to reproduce, and the seconds from the run's settings on disk to its last checkpoint."""
    child = job.start(run_dir)
    began = wait_for(run_dir / "run.toml", child)
    training_s = wait_for(job.last_checkpoint(run_dir), child) - began
    finish(child, "the uninterrupted run")
    return final_weights(run_dir, job), training_s


def killed(job: Job, run_dir: Path, after_s: float) -> bool:
    """Train, kill after so many seconds of training; False when training had ended before."""
    child = job.start(run_dir)
    began = wait_for(run_dir / "run.toml", child)
    time.sleep(max(0.0, began + after_s - time.monotonic()))
    child.kill()
    child.communicate()
    return not job.last_checkpoint(run_dir).exists()


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    moments = random.Random(options.seed)
    same = done = 0
    with tempfile.TemporaryDirectory(prefix="dorylus-kill-") as name:
        folder = Path(name)
        job = prepare(folder, options)
        expected, training_s = uninterrupted(job, folder / "uninterrupted")
        print(f"uninterrupted: {job.epochs} epochs in {training_s:.2f} s", flush=True)
        attempt = 0
        while done < options.kills:
            attempt += 1
            run_dir, after_s = folder / f"run-{attempt}", moments.uniform(0, training_s)
            if attempt > 10 * options.kills:
                raise SystemExit("training ends before it can be killed: give it more --epochs")
            if not killed(job, run_dir, after_s):
                continue
            done += 1
            before = [path.name for path in checkpoints(run_dir)]
            finish(_dorylus("resume", str(run_dir)), "dorylus resume")
            equal = final_weights(run_dir, job) == expected
            same += equal
            result = "identical" if equal else "DIFFERENT"
            print(
                f"killed after {after_s:5.2f} s at {before[-1] if before else 'no checkpoint yet'}: {result}",
                flush=True,
            )
    print(f"{same} of {done} resumed runs end with bit-identical weights")
    return 0 if same == done else 1


def prepare(folder: Path, options: argparse.Namespace) -> Job:
    """A generated graph in a store, and what to train on it."""
    store = folder / "graph"
    dorylus.communities(num_vertices=options.vertices, seed=1).save(store)
    return Job(store=store, model=options.model, epochs=options.epochs, checkpoint_every=options.checkpoint_every)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_resume")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--checkpoint-every", type=int, default=7)
    parser.add_argument("--vertices", type=int, default=3000)
    parser.add_argument("--model", choices=("gcn", "gat"), default="gcn")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
