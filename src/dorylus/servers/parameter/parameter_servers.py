"""The parameter servers of a run, as its cluster talks to them: pull weights, push gradients, finish.

Which parameter server stashes the weights of which interval.

Which parameter server steps which parameters.
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
from dorylus.servers.parameter.parameter_server import Aliases, Momenta, ParameterServer, Weights, published
from dorylus.servers.parameter.stash import Version
from dorylus.servers.parameter.state import PSState, check_names, check_state, load_state, state_of
from dorylus.servers.parameter.updates import GradientLedger, Gradients, Update, make_updates


class Pins:
    """The homes of the intervals in flight: each is served by the one server it first talked to.

    ``most`` and ``most_versions`` are the largest numbers of pins, and of different versions pinned, there ever were.
    """

    def __init__(self, servers: Sequence[ParameterServer]) -> None:
        self._servers = servers
        self._homes: dict[tuple[int, int], ParameterServer] = {}
        self._versions: Counter[Version] = Counter()
        self.most = self.most_versions = 0

    def __contains__(self, at: tuple[int, int]) -> bool:
        return at in self._homes

    def pin(self, interval: int, epoch: int, ahead: int = 0) -> None:
        """Pin the latest version, moved on by so many updates, on the first server with the fewest pins."""
        home = min(self._servers, key=lambda server: len(server.stash))
        version = Version(home.version, ahead)
        home.stash.pin(interval, epoch, version, home.ahead(ahead))
        self._homes[interval, epoch] = home
        self._versions[version] += 1
        self.most = max(self.most, len(self._homes))
        self.most_versions = max(self.most_versions, len(self._versions))

    def pinned(self, interval: int, epoch: int) -> tuple[Version, Weights]:
        """The version an interval has pinned, and its weights."""
        return self._homes[interval, epoch].stash.get(interval, epoch)

    def release(self, interval: int, epoch: int) -> None:
        """Let go of an interval's version, if it has one: an interval without dense tasks never pulls."""
        home = self._homes.pop((interval, epoch), None)
        if home is None:
            return
        version, _ = home.stash.get(interval, epoch)
        home.stash.release(interval, epoch)
        self._versions[version] -= 1
        if not self._versions[version]:
            del self._versions[version]

    def clear(self) -> None:
        """Release all."""
        for interval, epoch in list(self._homes):
            self.release(interval, epoch)


def cut_slices(sizes: Mapping[str, int], num_servers: int) -> list[list[str]]:
    """Each server's parameters, in the program's order: whole ones, the servers' sums of sizes as even as greed gets.

    The largest goes first, to the server with least so far, the lowest number where several have. Servers beyond the
    number of parameters get none.
    """
    load = [0] * num_servers
    owner = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):  # a stable sort: equal sizes stay in order
        server = load.index(min(load))
        load[server] += sizes[name]
        owner[name] = server
    return [[name for name in sizes if owner[name] == server] for server in range(num_servers)]


LOOK_SHARE = 0.002  # of a run's time at most goes into looking whether its weights are finite

MakeOptimizer = Callable[[list[tuple[str, nn.Parameter]]], Optimizer]
MakeSchedule = Callable[[Optimizer], LRScheduler | None]


class ParameterServers:
    """Weights of one program, replicated on all servers, each of which steps a slice of them.

    The program's own parameters are the ones stepped, so they hold the latest weights. ``make_optimizer`` and
    ``make_schedule`` are called once for each slice; without the first the weights only serve (evaluation, prediction).
    With ``only``, they hold these parameters alone: others of the program are held elsewhere.
    ``update`` is "sync" (one step an epoch, from the sum of all ``num_intervals`` intervals' gradients) or "async" (one
    step an interval); see :mod:`dorylus.servers.parameter.updates`. Methods may be called from any thread; none waits
    for longer than an optimiser step takes.
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
            raise ConfigError(f"num_servers={num_servers}: somebody has to hold the weights, so use 1 or more.")
        parameters = dict(program.named_parameters())
        self._parameters = {name: each for name, each in parameters.items() if only is None or name in only}
        aliases = _aliases(program, self._parameters)
        self._names = {alias: name for name, its in aliases.items() for alias in its}
        self._serves_only = make_optimizer is None
        self.servers: list[ParameterServer] = []
        for its in cut_slices({name: each.numel() for name, each in self._parameters.items()}, num_servers):
            owned = {name: self._parameters[name] for name in its}
            optimizer = make_optimizer(list(owned.items())) if make_optimizer is not None and owned else None
            schedule = make_schedule(optimizer) if make_schedule is not None and optimizer is not None else None
            self.servers.append(ParameterServer(owned, aliases, optimizer, schedule))
        self.traffic = 0  # bytes of new values that servers sent each other
        self._stepping = threading.Lock()  # held while optimisers step; taken before the other
        self._lock = threading.Lock()  # held for moments: the latest version, pins, gradients
        self._pins = Pins(self.servers)
        self._update = update
        self._updates = make_updates(update, GradientLedger(num_intervals), self._names)
        self._look_again_s = 0.0
        self._frozen = False
        self._publish(0)

    @property
    def names(self) -> Collection[str]:
        """All names of the parameters held, those under which layers share them too."""
        return self._names.keys()

    @property
    def version(self) -> int:
        """The number of the latest version; every update and every load makes the next."""
        return self.servers[0].version

    @property
    def stash_sizes(self) -> list[int]:
        """How many pins each server holds."""
        return [len(server.stash) for server in self.servers]

    @property
    def max_stash(self) -> int:
        """The most pins there ever were at a time, over all servers."""
        return self._pins.most

    @property
    def max_versions(self) -> int:
        """The most versions that were ever pinned at a time."""
        return self._pins.most_versions

    def pull(self, interval: int, epoch: int) -> Weights:
        """The weights an interval uses in an epoch: the latest when it first asks, the same ever after.

        Where updates of earlier epochs are still to come they are moved on by what is known of these.
        """
        return self.pull_version(interval, epoch)[1]

    def pull_version(self, interval: int, epoch: int) -> tuple[Version, Weights]:
        """The same, with its name: weights of one name are the same."""
        with self._lock:
            if (interval, epoch) not in self._pins:
                self._updates.ledger.enter(interval, epoch)
                self._pins.pin(interval, epoch, self._updates.missing(epoch))
            return self._pins.pinned(interval, epoch)

    def latest(self) -> Weights:
        """The latest version; later updates leave it as it is."""
        return self.servers[0].latest

    def push(self, interval: int, epoch: int, step: int, grads: Gradients) -> None:
        """Take one dense task's weight gradients, each exactly once.

        Every task of a step that has weights pushes, an empty table where it has no gradient; nobody writes to the
        gradients afterwards.
        """
        self._check_trains()
        with self._lock:
            self._updates.push(interval, epoch, step, grads)

    def finish(self, interval: int, epoch: int) -> None:
        """WU of an interval, which has pushed all its gradients: steps if an update is due, then releases its pin."""
        self._check_trains()
        with self._stepping:
            if self._frozen:
                raise TrainingError("weights are not updated any more: the run is being ended.")
            with self._lock:
                due = self._updates.finish(interval, epoch)
            try:
                for update in due:
                    self._step(update)
            finally:
                with self._lock:
                    self._pins.release(interval, epoch)

    def freeze(self, version: int) -> bool:
        """Make no update from now on; whether there was none after this version."""
        with self._stepping:
            self._frozen = True
            return self.version == version

    def synchronise(self) -> None:
        """From now on one update an epoch, asked for between epochs."""
        with self._stepping, self._lock:
            ledger = self._updates.ledger
            if still_open := ledger.open_epochs():
                raise TrainingError(
                    f"updates become synchronous between epochs, but epoch {still_open[0]} is in progress: let every "
                    "interval finish it first."
                )
            self._update, self._updates = "sync", make_updates("sync", ledger, self._names)

    def end_epoch(self, loss: float) -> None:
        """Move every learning-rate schedule on by an epoch."""
        with self._stepping:
            for server in self.servers:
                server.end_epoch(loss)

    def look(self, when: str) -> None:
        """Refuse to go on with weights, or state of optimisers, that have left the range of float32.

        Asked after every epoch, and done then unless epochs are so short that looking would slow them down: a look
        is paid for by the time until the next. State that is given away is looked at always.
        """
        with self._stepping:
            begun_s = time.perf_counter()
            if begun_s >= self._look_again_s:
                self._check_finite(when)
                now_s = time.perf_counter()
                self._look_again_s = now_s + (now_s - begun_s) / LOOK_SHARE

    def _check_finite(self, when: str) -> None:
        intra_op = torch.get_num_threads()
        torch.set_num_threads(1)  # more would go on spinning for a while beside the tasks that come next
        try:
            for server in self.servers:
                if what := server.exploded():
                    raise DivergedError(f"{when}, {what}")
        finally:
            torch.set_num_threads(intra_op)

    def weights(self) -> dict[str, Tensor]:
        """A copy of the latest weights."""
        return {name: weight.detach().clone() for name, weight in self.latest().items()}

    def load(self, weights: Weights) -> None:
        """Hold these weights as a new version; optimisers and schedules stay as they are."""
        self._check_fit(weights)
        with self._stepping:
            self._load(weights)

    def state(self) -> PSState:
        """A copy of everything a run needs to go on from here; there is none of what is not finite."""
        with self._stepping:
            self._check_finite("as things are now")
            return state_of(self.servers, self.weights())

    def restore(self, state: PSState) -> None:
        """Go on from a state, which may come from another number of servers; epochs in progress are forgotten.

        Where the weights only serve, the state of optimisers is left out.
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
        """Every owner steps its slice and sends the new values to all others; then all have the next version."""
        values: dict[str, Tensor] = {}
        momenta: dict[str, float] = {}
        for server in self.servers:
            values.update(server.step(update))
            momenta.update(server.momenta())
        self.traffic += (len(self.servers) - 1) * sum(value.nbytes for value in values.values())
        with self._lock:
            self._receive(self.version + 1, values, momenta)

    def _publish(self, version: int) -> None:
        """Make a version of the program's parameters as they are."""
        self._receive(version, {name: published(each) for name, each in self._parameters.items()})

    def _receive(self, version: int, values: Weights, momenta: Momenta | None = None) -> None:
        for server in self.servers:
            server.receive(version, values, momenta)

    def _load(self, weights: Weights) -> None:
        with torch.no_grad():
            for name, weight in weights.items():
                self._parameters[self._names[name]].copy_(weight)
        with self._lock:
            self._publish(self.version + 1)

    def _check_trains(self) -> None:
        if self._serves_only:
            raise TrainingError("these weights only serve: give the parameter servers an optimiser to update them.")

    def _check_fit(self, weights: Weights) -> None:
        for name, weight in weights.items():
            if name not in self._names:
                raise CheckpointError(f"weights of another model: {unknown_name('parameter', name, self._names)}")
            its = self._parameters[self._names[name]]
            if its.shape != weight.shape:  # a copy would be broadcast
                raise CheckpointError(
                    f"weights of another model: their {name} is {list(weight.shape)}, and this model's is "
                    f"{list(its.shape)}. Build the model they were trained with."
                )


def _aliases(program: nn.Module, parameters: dict[str, nn.Parameter]) -> Aliases:
    """All names of each parameter, the one it is stepped under first: layers may share weights."""
    first = {parameter: name for name, parameter in parameters.items()}
    aliases: dict[str, list[str]] = {name: [] for name in parameters}
    for alias, parameter in program.named_parameters(remove_duplicate=False):
        if parameter in first:
            aliases[first[parameter]].append(alias)
    return aliases
