"""What a live page costs: epochs while the page of the run is open in a browser against epochs without it.

    python -m benchmarks.live [--minutes 10] [--threads 2] [--block-s 20]

One run trains for ten minutes, and `dorylus live` serves its page. Two states take turns, in blocks: the page is not
open; Chromium has it open. Server and browser are on the machine that trains. The first seconds of each block, in which
the page opens, are not counted. The mean over all epochs of a state is compared, since
the median would not see work that is done once a second. "Page, cores" is what server and browser used of the
processors, which other programs on the machine do not blur: training can lose no more. Needs Chromium.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import dorylus
from benchmarks.quiet import machine_s, process_s
from benchmarks.table import markdown, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from chromium import MISSING, PROGRAM, chromium

CLOSED, OPEN = "not open", "open in Chromium"
STATES = (CLOSED, OPEN)
HEADINGS = (
    "page",
    "blocks",
    "epochs",
    "mean ms/epoch",
    "median ms/epoch",
    "mean / not open",
    "page, cores",
    "others, cores",
)
BOUND = 1.01


class Block:
    """The epochs of a stretch of time, and how many cores server and browser, and all other programs, used."""

    def __init__(self, state: str) -> None:
        self.state, self.seconds, self.page_cores, self.other_cores = state, [], 0.0, 0.0

    @property
    def mean_s(self) -> float:
        return statistics.mean(self.seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--block-s", type=float, default=20.0)
    parser.add_argument("--settle-s", type=float, default=4.0, help="not counted, at the start of each block")
    parser.add_argument("--vertices", type=int, default=30_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "live.md")
    options = parser.parse_args(arguments)
    if PROGRAM is None:
        sys.exit(MISSING)
    blocks = measure(options)
    report(options, blocks)
    return 0


def measure(options: argparse.Namespace) -> list[Block]:
    graph = dorylus.communities(num_vertices=options.vertices, num_classes=8, average_degree=20, seed=0)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        run_dir = Path(folder) / "run"
        settings = {"epochs": 10**9, "run_dir": str(run_dir), "threads": options.threads, "checkpoint_every": 10**6}
        with closing(dorylus.Trainer(graph, dorylus.gcn(hidden=32), **settings)) as trainer:
            trainer.run(20)
            blocks: list[Block] = []
            with served(run_dir) as address:
                until = time.monotonic() + options.minutes * 60
                while time.monotonic() < until:
                    turn = len(blocks) // len(STATES) % len(STATES)
                    for state in (*STATES[turn:], *STATES[:turn]):  # neither is always the first of the two
                        with page(browser, address, state):
                            run_for(trainer, options.settle_s)
                            blocks.append(measured(trainer, state, options.block_s - options.settle_s))
            return blocks


@contextmanager
def served(run_dir: Path) -> Iterator[str]:
    """The address of the live page of a run."""
    command = [sys.executable, "-m", "dorylus.cli", "live", str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            yield server.stdout.readline().removeprefix("live page: ").strip()
        finally:
            server.terminate()


@contextmanager
def page(browser: Any, address: str, state: str) -> Iterator[None]:
    """The page, open or not."""
    if state == CLOSED:
        yield
        return
    with closing(browser.new_page()) as opened:
        opened.goto(address)
        yield
        if opened.locator(".state.live").count() != 1:
            raise RuntimeError("the page did not follow the run")


def run_for(trainer: dorylus.Trainer, seconds: float) -> list[float]:
    """Train for so long; the time of each epoch, with all that is done between two."""
    spent, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.perf_counter()
        trainer.run(10)
        spent.append((time.perf_counter() - began) / 10)
    return spent


def measured(trainer: dorylus.Trainer, state: str, seconds: float) -> Block:
    block = Block(state)
    page_s = children_s(os.getpid())
    machine, own, began = machine_s(), process_s(os.getpid()), time.perf_counter()
    block.seconds = run_for(trainer, seconds)
    spent, foreign = time.perf_counter() - began, machine_s() - machine - (process_s(os.getpid()) - own)
    now = children_s(os.getpid())
    used = sum(now[pid] - page_s.get(pid, 0.0) for pid in now)
    block.page_cores, block.other_cores = used / spent, max(0.0, foreign - used) / spent
    return block


def children_s(pid: int) -> dict[int, float]:
    """Processor seconds of every process that a process has started, and of those that they have started."""
    found: dict[int, float] = {}
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            with suppress(OSError):  # it has ended
                found |= {child: process_s(child), **children_s(child)}
    return found


def report(options: argparse.Namespace, blocks: Sequence[Block]) -> None:
    of = {state: [block for block in blocks if block.state == state] for state in STATES}
    base = statistics.mean(block.mean_s for block in of[CLOSED])
    lines = [
        (
            state,
            str(len(its)),
            f"{10 * sum(len(block.seconds) for block in its):,}",
            f"{1e3 * statistics.mean(block.mean_s for block in its):.2f}",
            f"{1e3 * statistics.median(s for block in its for s in block.seconds):.2f}",
            f"{statistics.mean(block.mean_s for block in its) / base:.4f}",
            f"{cores_of(its):.4f}",
            f"{statistics.mean(block.other_cores for block in its):.2f}",
        )
        for state, its in of.items()
    ]
    show(HEADINGS, lines, "the cost of a live page")
    spread = statistics.stdev(block.mean_s for block in of[CLOSED]) / base if len(of[CLOSED]) > 1 else float("nan")
    ratio = statistics.median(a.mean_s / b.mean_s for a, b in zip(of[OPEN], of[CLOSED], strict=True))
    quiet = statistics.mean(block.other_cores for block in of[CLOSED])
    text = f"`python -m benchmarks.live --minutes {options.minutes:g} --threads {options.threads}`\n\n"
    text += f"GCN 32-32-8 on {options.vertices:,} vertices, {options.threads} threads of {os.cpu_count()} cores. "
    text += f"Other programs used {quiet:.2f} cores.\n\n{markdown(HEADINGS, lines)}\n"
    used = (cores_of(of[OPEN]) - cores_of(of[CLOSED])) / len(os.sched_getaffinity(0))
    text += f"Server and open page use {100 * used:.2f} % of the machine. "
    text += f"Blocks without an open page differ by {100 * spread:.1f} % "
    text += f"(standard deviation); with the page open an epoch takes {100 * (ratio - 1):+.2f} % (median of pairs). "
    text += "At most 1 % is required: "
    text += "holds.\n" if max(ratio, 1 + used) <= BOUND else "not shown by this run.\n"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text)


def cores_of(blocks: Sequence[Block]) -> float:
    return statistics.mean(block.page_cores for block in blocks)


if __name__ == "__main__":
    sys.exit(main())
