"""The parameter servers of a run: pull weights, push gradients, finish an interval's epoch.

Each server steps a slice of the parameters (:func:`slice_parameters`). One server, the one with the fewest pins at an
interval's first pull, pins the interval's version (:class:`Pins`).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dorylus.errors import CheckpointError, ConfigError, DivergedError, TrainingError, unknown_name
from dorylus.servers.parameter.parameter_server import Aliases, Momenta, ParameterServer, WeightsByName, published
from dorylus.servers.parameter.stash import Version
from dorylus.servers.parameter.state import PSState, check_names, check_state, load_state, state_of
from dorylus.servers.parameter.updates import GradientLedger, Gradients, Update, make_updates


class Pins:
    """The pins of the intervals in flight, each on the one server that serves the interval for the epoch.

    ``most`` and ``most_versions`` are the largest numbers of pins, and of different pinned versions, at any time.
    """

    def __init__(self, servers: Sequence[ParameterServer]) -> None:
        self._servers = servers
        self._server_of: dict[tuple[int, int], ParameterServer] = {}
        self._versions: Counter[Version] = Counter()
        self.most = self.most_versions = 0

    def __contains__(self, interval_and_epoch: tuple[int, int]) -> bool:
        return interval_and_epoch in self._server_of

    def pin(self, interval: int, epoch: int, ahead: int = 0) -> None:
        """Pin the latest version, or that predicted ``ahead`` updates later, on the server with the fewest pins."""
        server = min(self._servers, key=lambda each: len(each.stash))
        version = Version(server.version, ahead)
        server.stash.pin(interval, epoch, version, server.predicted(ahead))
        self._server_of[interval, epoch] = server
        self._versions[version] += 1
        self.most = max(self.most, len(self._server_of))
        self.most_versions = max(self.most_versions, len(self._versions))

    def pinned(self, interval: int, epoch: int) -> tuple[Version, WeightsByName]:
        """The version an interval has pinned, and its weights."""
        return self._server_of[interval, epoch].stash.get(interval, epoch)

    def release(self, interval: int, epoch: int) -> None:
        """Release an interval's version, if it has one: an interval without dense tasks never pulls."""
        server = self._server_of.pop((interval, epoch), None)
        if server is None:
            return
        version, _ = server.stash.get(interval, epoch)
        server.stash.release(interval, epoch)
        self._versions[version] -= 1
        if not self._versions[version]:
            del self._versions[version]

    def clear(self) -> None:
        """Release all pins."""
        for interval, epoch in list(self._server_of):
            self.release(interval, epoch)


def slice_parameters(sizes: Mapping[str, int], num_servers: int) -> list[list[str]]:
    """Each server's slice: whole parameters, in the program's order, assigned greedily so that total sizes are even.

    The largest parameter is assigned first, to the server with the smallest total so far, the lowest number of several.
    Servers beyond the number of parameters get none.
    """
    load = [0] * num_servers
    owner = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):  # a stable sort: equal sizes stay in order
        server = load.index(min(load))
        load[server] += sizes[name]
        owner[name] = server
    return [[name for name in sizes if owner[name] == server] for server in range(num_servers)]


CHECK_SHARE = 0.002  # the largest share of a run's time that goes into checking that weights are finite

MakeOptimizer = Callable[[list[tuple[str, nn.Parameter]]], Optimizer]
MakeSchedule = Callable[[Optimizer], LRScheduler | None]


class ParameterServers:
    """Weights of one program, replicated on all servers, each of which steps a slice of them.

    The program's own parameters are the ones stepped, so they hold the latest weights. ``make_optimizer`` and
    ``make_schedule`` are called once for each slice; without the first the weights are only served (evaluation,
    prediction). With ``only``, they hold these parameters of the program and no others. ``update`` is "sync" (one step
    an epoch, from the sum of all ``num_intervals`` intervals' gradients) or "async" (one step an interval); see
    :mod:`dorylus.servers.parameter.updates`. Methods may be called from any thread; none waits for longer than an
    optimiser step takes.
    """

    def __init__(
        self,
        program: nn.Module,
        num_servers: int = 1,
        *,
        make_optimizer: MakeOptimizer | None = None,
        make_schedule: MakeSchedule | None = None,
        update: str = "sync",
        num_intervals: int = 1,
        only: Collection[str] | None = None,
    ) -> None:
        if num_servers < 1:
            raise ConfigError(
                f"num_servers={num_servers}: a parameter server has to hold the weights, so use 1 or more."
            )
        parameters = dict(program.named_parameters())
        self._parameters = {name: each for name, each in parameters.items() if only is None or name in only}
        aliases = _aliases(program, self._parameters)
        self._names = {alias: name for name, shared in aliases.items() for alias in shared}
        self._serves_only = make_optimizer is None
        self.servers: list[ParameterServer] = []
        for names in slice_parameters({name: each.numel() for name, each in self._parameters.items()}, num_servers):
            owned = {name: self._parameters[name] for name in names}
            optimizer = make_optimizer(list(owned.items())) if make_optimizer is not None and owned else None
            schedule = make_schedule(optimizer) if make_schedule is not None and optimizer is not None else None
            self.servers.append(ParameterServer(owned, aliases, optimizer, schedule))
        self.traffic = 0  # bytes of new values that the servers sent each other
        self._stepping = threading.Lock()  # held while optimisers step; acquired before the other
        self._lock = threading.Lock()  # held briefly: the latest version, pins, gradients
        self._pins = Pins(self.servers)
        self._update = update
        self._updates = make_updates(update, GradientLedger(num_intervals), self._names)
        self._next_check_s = 0.0
        self._frozen = False
        self._publish(0)

    @property
    def names(self) -> Collection[str]:
        """All names of the parameters held, including those under which layers share them."""
        return self._names.keys()

    @property
    def version(self) -> int:
        """The number of the latest version; every update and every load makes a new one."""
        return self.servers[0].version

    @property
    def stash_sizes(self) -> list[int]:
        """How many pins each server holds."""
        return [len(server.stash) for server in self.servers]

    @property
    def max_stash(self) -> int:
        """The largest number of pins at any time, over all servers."""
        return self._pins.most

    @property
    def max_versions(self) -> int:
        """The largest number of pinned versions at any time."""
        return self._pins.most_versions

    def pull(self, interval: int, epoch: int) -> WeightsByName:
        """The weights an interval uses in an epoch: the latest ones at its first pull, and the same ones afterwards.

        If updates of earlier epochs are still missing, the weights are predicted for them.
        """
        return self.pull_version(interval, epoch)[1]

    def pull_version(self, interval: int, epoch: int) -> tuple[Version, WeightsByName]:
        """The same, with the version that identifies the weights."""
        with self._lock:
            if (interval, epoch) not in self._pins:
                self._updates.ledger.enter(interval, epoch)
                self._pins.pin(interval, epoch, self._updates.missing(epoch))
            return self._pins.pinned(interval, epoch)

    def latest(self) -> WeightsByName:
        """The latest version; later updates do not change it."""
        return self.servers[0].latest

    def push(self, interval: int, epoch: int, step: int, grads: Gradients) -> None:
        """Accept one dense task's weight gradients, each exactly once.

        Every task of a step that has weights pushes, an empty table if it has no gradient. The gradients must not be
        written to afterwards.
        """
        self._check_trains()
        with self._lock:
            self._updates.push(interval, epoch, step, grads)

    def finish(self, interval: int, epoch: int) -> None:
        """WU of an interval, which has pushed all its gradients: makes the updates due and releases its pin."""
        self._check_trains()
        with self._stepping:
            if self._frozen:
                raise TrainingError("weights are not updated any more: the run is ending.")
            with self._lock:
                due = self._updates.finish(interval, epoch)
            try:
                for update in due:
                    self._step(update)
            finally:
                with self._lock:
                    self._pins.release(interval, epoch)

    def freeze(self, version: int) -> bool:
        """Make no update from now on; returns whether there was none after this version."""
        with self._stepping:
            self._frozen = True
            return self.version == version

    def synchronise(self) -> None:
        """Make one update an epoch from now on. Called between epochs."""
        with self._stepping, self._lock:
            ledger = self._updates.ledger
            if still_open := ledger.open_epochs():
                raise TrainingError(
                    f"updates become synchronous between epochs, but epoch {still_open[0]} is in progress: let every "
                    "interval finish it first."
                )
            self._update, self._updates = "sync", make_updates("sync", ledger, self._names)

    def end_epoch(self, loss: float) -> None:
        """Step every learning-rate schedule by an epoch."""
        with self._stepping:
            for server in self.servers:
                server.end_epoch(loss)

    def check_finite(self, when: str) -> None:
        """Raise :class:`DivergedError` if weights or optimiser state have left the range of float32.

        Called after every epoch. The check is skipped while it would take more than ``CHECK_SHARE`` of the time since
        the last one. :meth:`state` always checks.
        """
        with self._stepping:
            begun_s = time.perf_counter()
            if begun_s >= self._next_check_s:
                self._check_finite(when)
                now_s = time.perf_counter()
                self._next_check_s = now_s + (now_s - begun_s) / CHECK_SHARE

    def _check_finite(self, when: str) -> None:
        intra_op = torch.get_num_threads()
        torch.set_num_threads(1)  # torch's other threads would spin while the next tasks run
        try:
            for server in self.servers:
                if what := server.overflowed():
                    raise DivergedError(f"{when}, {what}")
        finally:
            torch.set_num_threads(intra_op)

    def weights(self) -> dict[str, Tensor]:
        """A copy of the latest weights."""
        return {name: weight.detach().clone() for name, weight in self.latest().items()}

    def load(self, weights: WeightsByName) -> None:
        """Hold these weights as a new version; optimisers and schedules do not change."""
        self._check_fit(weights)
        with self._stepping:
            self._load(weights)

    def state(self) -> PSState:
        """A copy of all state that a run needs to continue from here; refused if any of it is not finite."""
        with self._stepping:
            self._check_finite("as things are now")
            return state_of(self.servers, self.weights())

    def restore(self, state: PSState) -> None:
        """Continue from a state, which may come from another number of servers; epochs in progress are dropped.

        Without optimisers, only the weights are restored.
        """
        with self._stepping:
            self._check_fit(state.weights)
            check_names("the saved state", {self._names[name] for name in state.weights}, self._parameters)
            if not self._serves_only:
                check_state(self.servers, state)
                load_state(self.servers, state)
            self._load(state.weights)
            with self._lock:
                self._pins.clear()
                ledger = GradientLedger(self._updates.ledger.num_intervals)
                self._updates = make_updates(self._update, ledger, self._names)

    def _step(self, update: Update) -> None:
        """Every server steps its slice and sends the new values to all others; then all hold the next version."""
        values: dict[str, Tensor] = {}
        momenta: dict[str, float] = {}
        for server in self.servers:
            values.update(server.step(update))
            momenta.update(server.momenta())
        self.traffic += (len(self.servers) - 1) * sum(value.nbytes for value in values.values())
        with self._lock:
            self._receive(self.version + 1, values, momenta)

    def _publish(self, version: int) -> None:
        """Make a version of the program's current parameters."""
        self._receive(version, {name: published(each) for name, each in self._parameters.items()})

    def _receive(self, version: int, values: WeightsByName, momenta: Momenta | None = None) -> None:
        for server in self.servers:
            server.receive(version, values, momenta)

    def _load(self, weights: WeightsByName) -> None:
        with torch.no_grad():
            for name, weight in weights.items():
                self._parameters[self._names[name]].copy_(weight)
        with self._lock:
            self._publish(self.version + 1)

    def _check_trains(self) -> None:
        if self._serves_only:
            raise TrainingError(
                "these weights are only served: give the parameter servers an optimiser to update them."
            )

    def _check_fit(self, weights: WeightsByName) -> None:
        for name, weight in weights.items():
            if name not in self._names:
                raise CheckpointError(f"weights of another model: {unknown_name('parameter', name, self._names)}")
            parameter = self._parameters[self._names[name]]
            if parameter.shape != weight.shape:  # copy_ would broadcast
                raise CheckpointError(
                    f"weights of another model: their {name} is {list(weight.shape)}, and this model's is "
                    f"{list(parameter.shape)}. Build the model they were trained with."
                )


def _aliases(program: nn.Module, parameters: dict[str, nn.Parameter]) -> Aliases:
    """All names of each parameter, first the one under which it is stepped: layers may share weights."""
    first = {parameter: name for name, parameter in parameters.items()}
    aliases: dict[str, list[str]] = {name: [] for name in parameters}
    for alias, parameter in program.named_parameters(remove_duplicate=False):
        if parameter in first:
            aliases[first[parameter]].append(alias)
    return aliases
