"""Trainers with dense tasks on functions, in turns: seconds an epoch, and what functions were used for."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import dorylus
from benchmarks.shaped.place import Functions
from benchmarks.shaped.watch import Cores, quiet
from dorylus.cost import Meter, Phase, PriceBook, Rates, Role, make_bill
from dorylus.pools.autotune import Autotuned, TunerDecision
from dorylus.pools.functions.invocations import FunctionUsage, Invoked
from dorylus.pools.functions.unfused import Unfused
from dorylus.pools.limited import LimitedPool
from dorylus.pools.pool import PoolHandle, TensorPool
from dorylus.pools.relaunch import Relaunching
from dorylus.saga import Recipe
from dorylus.saga.dense import Call, Reply

MEMORY_MB = 1769  # of a function, for the bill: one vCPU of Lambda's


class Shared:
    """A pool that several contenders use, one after the other; the code that made it closes it."""

    def __init__(self, inner: TensorPool) -> None:
        self._inner = inner

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        self._inner.submit(call, done, failed)

    def close(self) -> None:
        pass


@dataclass
class Turn:
    """The figures of a turn: seconds an epoch, processor seconds, dollars, and the usage of functions."""

    epochs: int
    epoch_s: float
    cores: Mapping[str, float]
    used: FunctionUsage = field(default_factory=FunctionUsage)
    functions_usd: float = 0.0
    usd: float = 0.0


@dataclass
class Contender:
    """One way to train: with no functions, with ``limit`` at once, or with as many as are best from ``start`` on."""

    name: str
    graph: dorylus.Graph
    model: Recipe
    settings: Mapping[str, Any]
    functions: Functions | None = None
    limit: int | None = None
    start: int = 1
    fuse: bool = True
    keep: bool = False  # where tasks are not fused: without rematerialisation
    turns: list[Turn] = field(default_factory=list)
    noisy_turns: list[Turn] = field(default_factory=list)
    decisions: list[tuple[int, TunerDecision]] = field(default_factory=list)

    def __post_init__(self) -> None:
        made = None if self.functions is None else PoolHandle(self._stack(self.functions))
        self.trainer = dorylus.Trainer(
            self.graph, self.model, pool=made, epochs=10**9, **{"eval_every": 0, "trace_epochs": 0, **self.settings}
        )

    def _stack(self, functions: Functions) -> TensorPool:
        """The pool as a run makes it, except that the benchmark makes and closes the functions."""
        self.tried = Relaunching(Shared(functions.pool))
        if self.limit is not None:
            self.pool: LimitedPool | Autotuned = LimitedPool(self.tried, self.limit)
        else:
            self.pool = Autotuned(self.tried, self.start, decided=self._decided, at_most=functions.number)
        return self.pool if self.fuse else Unfused(self.pool, keep=self.keep)

    def _decided(self, decision: TunerDecision) -> None:
        self.decisions.append((self.trainer.epoch, decision))

    def turn(self, epochs: int) -> Turn:
        """Train some epochs, from drained to drained."""
        functions = self.functions
        before = functions.used() if functions else FunctionUsage()
        invoked_before = len(functions.invoked) if functions else 0
        cores, start = Cores(functions.pids if functions else ()), time.perf_counter()
        self.trainer.run(epochs)
        seconds = time.perf_counter() - start
        turn = Turn(epochs, seconds / epochs, cores.used())
        if functions is not None:
            turn.used = _minus(functions.used(), before)
            turn.functions_usd, turn.usd = _dollars(functions.invoked[invoked_before:], seconds)
        return turn

    @property
    def counted(self) -> list[Turn]:
        """The turns that count: those on a quiet machine, if there were any."""
        return self.turns or self.noisy_turns

    @property
    def epoch_s(self) -> float:
        return statistics.median(turn.epoch_s for turn in self.counted)

    def each_epoch(self, what: Callable[[Turn], float]) -> float:
        """Something summed over all turns that count, for one epoch."""
        return sum(map(what, self.counted)) / sum(turn.epochs for turn in self.counted)

    @property
    def remark(self) -> str:
        return "" if self.turns else "BUSY MACHINE"

    def to_dict(self) -> dict[str, Any]:
        counts = asdict(self.tried.counts) if self.functions else {}
        turns = [asdict(turn) for turn in self.counted]
        decisions = [{"epoch": epoch, **asdict(decision)} for epoch, decision in self.decisions]
        return {
            "name": self.name, "epoch_s": self.epoch_s, "remark": self.remark, "counts": counts,
            "decisions": decisions, "turns": turns,
        }  # fmt: skip


def take_turns(contenders: Sequence[Contender], rounds: int, turn_s: float, patience: int, *, settle: int = 0) -> None:
    """Train the contenders in turns of about ``turn_s`` seconds; a turn counts only on a quiet machine.

    Those that look for the right number of functions first train for ``settle`` epochs.
    """
    epochs = {each.name: _warm(each, turn_s, settle if each.limit is None else 0) for each in contenders}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for each in contenders:
            for _ in range(patience):
                turn = each.turn(epochs[each.name])
                if quiet(turn.cores["foreign_cores"]):
                    each.turns.append(turn)
                    break
                each.noisy_turns.append(turn)


def _warm(contender: Contender, turn_s: float, settle: int) -> int:
    """Warm up programs, connections and caches; returns how many epochs fill a turn."""
    start = time.perf_counter()
    contender.turn(2 + settle)
    first_s = time.perf_counter() - start
    epoch_s = contender.turn(1).epoch_s
    print(f"{contender.name}: first epochs {first_s:.1f} s, then {epoch_s:.3f} s", file=sys.stderr)
    return max(1, min(20, round(turn_s / epoch_s)))


def _minus(after: FunctionUsage, before: FunctionUsage) -> FunctionUsage:
    earlier = asdict(before)
    return FunctionUsage(**{name: value - earlier[name] for name, value in asdict(after).items()})


def _dollars(invoked: Sequence[Invoked], seconds: float) -> tuple[float, float]:
    """What Lambda would bill for the invocations, and that with the machine for so long, the nearest there is."""
    rates, meter = _rates(), Meter()
    for each in invoked:
        meter.add_call(each.billed_ms, MEMORY_MB, phase=Phase.TRAINING)
    functions = make_bill(meter.snapshot(), rates).total_usd
    meter.add_servers(Role.GRAPH, seconds, phase=Phase.TRAINING)
    return functions, make_bill(meter.snapshot(), rates).total_usd


@cache
def _rates() -> Rates:
    book = PriceBook.load(None)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    instance = book.nearest_instance(len(os.sched_getaffinity(0)), memory_bytes, platform.machine()).name
    return Rates.of(book, instance, function="lambda-x86")
