"""Where functions are, and the pools that use them: on a shaped network, on one that is not, or on this machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from benchmarks.shaped import probe
from benchmarks.shaped.functions import FunctionsInvoker, RelayProcess
from benchmarks.shaped.network import Network
from dorylus.pools.functions.functions_pool import FunctionsPool, functions_pool
from dorylus.pools.functions.invocations import FunctionsConfig, FunctionUsage, Invoked

PORTS = range(7000, 7040)  # of a namespace of our own: no other process uses any of them
PROBE_PORT = 7099
_free_ports = iter(PORTS)


@dataclass(frozen=True)
class Functions:
    """A pool of functions, every invocation it made, and the processes behind it."""

    pool: FunctionsPool
    invoked: list[Invoked]
    place: Place

    @property
    def pids(self) -> list[int]:
        return self.place.pids

    @property
    def number(self) -> int:
        return self.place.num_functions

    def used(self) -> FunctionUsage:
        """Their usage so far."""
        return sum(self.pool.usage().values(), FunctionUsage())


class Place:
    """Some functions. Every pool made here uses the same ones, by the direct path; ``link`` is one's network."""

    def __init__(
        self,
        name: str,
        cores: set[int],
        num_functions: int,
        mbit: float | None = None,
        delay_ms: float | None = None,
    ) -> None:
        """Give a bandwidth or a delay (0 is one) for functions on a network; else they are on loopback.

        ``cores``: those that functions and the relay run on.
        """
        self.num_functions = num_functions
        self.link: probe.Link | None = None
        self._relay: RelayProcess | None = None
        self._pools: list[FunctionsPool] = []
        self._travel: dict[str, Any] = {"data_path": "direct"}
        there = ["taskset", "--cpu-list", ",".join(map(str, sorted(cores)))]
        where = [there] * num_functions
        if mbit is not None or delay_ms is not None:
            network = Network(num_functions, mbit, name)
            self._relay = RelayProcess(there, network.home, delay_ms or 0.0, [*PORTS, PROBE_PORT])
            self._travel["advertise"] = network.home
            self.link = probe.measure(network, 0, PROBE_PORT)
            print(f"{name}: {num_functions} functions; {self.link}", file=sys.stderr)
            where = [network.command(number, there) for number in range(num_functions)]
        self.invoker = FunctionsInvoker(where, (delay_ms or 0.0) / 1e3)

    def functions(self, **travel: Any) -> Functions:
        """A pool of these functions, which lives until the place is closed."""
        ports = (next(_free_ports), next(_free_ports)) if self._relay else (0, 0)
        config = FunctionsConfig(**{**self._travel, "ports": ports, **travel})
        invoked: list[Invoked] = []
        pool = functions_pool(self.invoker, config, invoked=invoked.append)
        self._pools.append(pool)
        return Functions(pool, invoked, self)

    @property
    def pids(self) -> list[int]:
        """All processes there are, the relay's too."""
        return [*self.invoker.pids, *([self._relay.process.pid] if self._relay else [])]

    def close(self) -> None:
        for pool in self._pools:
            pool.close()
        self.invoker.stop()
        if self._relay is not None:
            self._relay.stop()
