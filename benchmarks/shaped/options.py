"""The options that all three benchmarks have."""

from __future__ import annotations

import argparse
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"


def parser(name: str, description: str | None, *, rounds: int, turn_s: float) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--servers", type=int, default=1)
    made.add_argument("--mbit", type=float, default=200.0, help="of each function, each way")
    made.add_argument("--delay-ms", type=float, default=5.0, help="of every byte, each way")
    made.add_argument("--rounds", type=int, default=rounds, help="turns that every contender takes")
    made.add_argument("--turn-s", type=float, default=turn_s, help="seconds of a turn, at least one epoch")
    made.add_argument("--patience", type=int, default=5, help="times a turn is tried until the machine is quiet")
    made.add_argument("--results", type=Path, default=RESULTS)
    return made
