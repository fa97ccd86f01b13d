"""Training on three Ray nodes while servers are killed, nodes die and cables are pulled: is it still the same run?

    python -m benchmarks.chaos [--runs 30] [--seed 0]

Every run trains the same small graph in `pipe` mode with three graph servers and two parameter servers. At a random
moment one random misdeed is done: SIGKILL to a graph server or a parameter server; SIGKILL to every process of a node,
which is started again four seconds later; a node's cable pulled for five seconds. A run passes when its weights are
those of embedded servers within 1e-5 and it has left nothing: no process, actor, placement group, thread, shared memory
or file. Nodes are network namespaces of this machine (root), with an address and a Ray each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import table

RESULTS = Path(__file__).parent / "results"
TESTS = Path(__file__).parents[1] / "tests"
CLOSE = 1e-5
HEADINGS = (
    "run",
    "misdeed",
    "victim",
    "at epoch",
    "noticed after s",
    "recovered after s",
    "max weight difference",
    "leaks",
)
SUMMARY = ("misdeed", "runs", "passed", "noticed after s, median", "recovered after s, median", "worst")
DEEDS = {
    "graph server": "kill a graph server",
    "parameter server": "kill a parameter server",
    "node": "kill a node",
    "cable": "pull a cable for 5 s",
}


def runs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What came of each run, as each ends: they are made where nothing can get out, and nothing can be left."""
    asked = {"runs": options.runs, "seed": options.seed, "epochs": options.epochs}
    command = [sys.executable, "-m", "ray_bench.isolated", "ray_bench.chaos", json.dumps(asked)]
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(TESTS), str(TESTS.parent)])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}) as child:
        assert child.stdout is not None
        for line in child.stdout:
            yield json.loads(line)
    if child.returncode != 0:
        yield {"error": f"the bench ended with code {child.returncode}", "left": []}


def passed(told: Mapping[str, Any]) -> bool:
    """Whether a run came through it as if nothing had happened."""
    return not told["error"] and not told["left"] and told["furthest"] <= CLOSE


def cells(told: Mapping[str, Any]) -> tuple[str, ...]:
    """A run as a line of the table."""
    return (
        str(told["run"]),
        DEEDS[told["misdeed"]],
        told["victim"],
        str(told["at_epoch"]),
        seconds(told["noticed_s"]),
        seconds(told["recovered_s"]),
        told["error"] or f"{told['furthest']:.1e}",
        ", ".join(told["left"]) or "none",
    )


def summary(ended: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A line for each misdeed."""
    lines = []
    for misdeed, words in DEEDS.items():
        its = [told for told in ended if told["misdeed"] == misdeed]
        noticed = [told["noticed_s"] for told in its if told["noticed_s"] is not None]
        recovered = [told["recovered_s"] for told in its if told["recovered_s"] is not None]
        well = sum(passed(told) for told in its)
        middle = (seconds(statistics.median(times) if times else None) for times in (noticed, recovered))
        lines.append((words, str(len(its)), str(well), *middle, seconds(max(recovered, default=None))))
    return lines


def seconds(value: float | None) -> str:
    """Never noticed: there was nothing to recover from, as nothing was lost."""
    return "-" if value is None else f"{value:.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    ended: list[dict[str, Any]] = []
    wrong: list[str] = []
    for told in runs(options):
        if "run" not in told:
            wrong += [each for each in (told.get("error", ""), *told.get("left_by_nodes", ())) if each]
        elif told["run"] == 0:
            print(f"without a misdeed: weights differ by {told['furthest']}, {told['seconds']:.0f} s", flush=True)
            wrong += [] if passed(told) else [f"the run without a misdeed: {told}"]
        else:
            ended.append(told)
            print(("ok    " if passed(told) else "FAILED ") + "  ".join(cells(told)), flush=True)
    report(ended, wrong, options.results)
    return 0 if len(ended) == options.runs and all(map(passed, ended)) and not wrong else 1


def report(ended: Sequence[Mapping[str, Any]], wrong: Sequence[str], folder: Path) -> None:
    """Print the tables, and leave them in a folder."""
    well = f"{sum(map(passed, ended))} of {len(ended)} runs ended with the undisturbed weights and left nothing"
    lines = [cells(told) for told in ended]
    table.show(HEADINGS, lines, well)
    table.show(SUMMARY, summary(ended), "by misdeed")
    for each in wrong:
        print(f"WRONG: {each}")
    folder.mkdir(parents=True, exist_ok=True)
    content = {"machine": table.machine(), "wrong": list(wrong), "runs": list(ended)}
    (folder / "chaos.json").write_text(json.dumps(content, indent=1) + "\n")
    tables = f"{table.markdown(SUMMARY, summary(ended))}\n{table.markdown(HEADINGS, lines)}"
    (folder / "chaos.md").write_text(f"`python -m benchmarks.chaos --runs {len(ended)}`: {well}.\n\n{tables}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of misdeeds and moments")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
