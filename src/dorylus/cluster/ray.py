"""Servers as actors of a Ray cluster: Ray places them, supervises them and starts them again.

Ray carries what is said between driver and servers; rows, weights and gradients travel over the servers' own sockets.
Graph servers are spread over the nodes, one each where there are enough; every server has its cores to itself.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dorylus.cluster.actors import Actor, NodeJob, graph_node, parameter_node
from dorylus.cluster.graph_node import PeerLostError
from dorylus.cluster.job import Job
from dorylus.cluster.remote import Note, RemoteCluster, ServersLostError
from dorylus.errors import ConfigError, DeadlineError
from dorylus.wire import WireError

PARAMETER_CPUS = 0.1  # a parameter server mostly waits
START_S = 120.0
MARGIN_S = 30.0  # that a call may take beyond a task's deadline


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """Which Ray cluster (None: the one this machine belongs to, or else a new one here), and what a server takes of it.

    ``spread``: whether every graph server must have a node to itself, or only where there are enough of them.
    """

    address: str | None = None
    cpus: float = 1.0
    spread: bool = False


def ray_cluster(job: Job, node_job: NodeJob, settings: RaySettings, note: Note) -> RemoteCluster:
    """A cluster of actors, ready to train; refuses at once what Ray has no room for."""
    ray = connected(settings.address)
    assert job.training is not None
    graphs, parameters = job.cut.num_servers, job.training.parameter_servers
    group = _placed(ray, graphs, parameters, settings)
    shared = ray.put(node_job)
    patience_s = job.deadline_s + MARGIN_S
    return RemoteCluster(
        job,
        RayServers(ray, graph_node, shared, group, list(range(graphs)), settings.cpus, patience_s),
        RayServers(ray, parameter_node, shared, group, [graphs] * parameters, PARAMETER_CPUS, patience_s),
        note=note,
    )


def connected(address: str | None) -> Any:
    """Ray, connected to a cluster."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError('cluster="ray" needs Ray: pip install "dorylus[ray]".') from error
    if ray.is_initialized():
        return ray
    try:
        ray.init(address=address or "auto", log_to_driver=False, configure_logging=False)
    except ConnectionError as error:
        where = f"at {address}" if address else "on this machine"
        raise ConfigError(
            f"there is no Ray cluster {where}: start one with `ray start --head`, or give the address of one."
        ) from error
    return ray


def _placed(ray: Any, graphs: int, parameters: int, settings: RaySettings) -> Any:
    """Room for all servers, each graph server in a bundle of its own and the parameter servers in the last one."""
    from ray.util.placement_group import placement_group, remove_placement_group

    bundles = [{"CPU": settings.cpus} for _ in range(graphs)] + [{"CPU": PARAMETER_CPUS * parameters}]
    strategy = "STRICT_SPREAD" if settings.spread else "SPREAD"
    group = placement_group(bundles, strategy=strategy)
    if group.wait(START_S if _could_fit(ray, bundles) else 1.0):
        return group
    remove_placement_group(group)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    has = ray.cluster_resources().get("CPU", 0)
    free = ray.available_resources().get("CPU", 0)
    raise ConfigError(
        f"{graphs} graph servers of {settings.cpus:g} cores and {parameters} parameter servers do not fit: the Ray "
        f"cluster has {len(nodes)} nodes with {has:g} cores, {free:g} of them free. Use fewer servers or threads, or "
        "add nodes."
    )


def _could_fit(ray: Any, bundles: Sequence[dict[str, float]]) -> bool:
    return bool(ray.cluster_resources().get("CPU", 0) >= sum(each["CPU"] for each in bundles))


class RayServers:
    """Servers of one kind, as actors."""

    def __init__(
        self,
        ray: Any,
        make: Callable[..., Any],
        shared: Any,
        group: Any,
        bundles: Sequence[int],
        cpus: float,
        patience_s: float,
    ) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._ray, self._patience_s = ray, patience_s
        self._group = group
        actor = ray.remote(_RayActor)
        self._actors = [
            actor.options(
                num_cpus=cpus,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=2,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle),
            ).remote(make, shared, number)
            for number, bundle in enumerate(bundles)
        ]

    def __len__(self) -> int:
        return len(self._actors)

    def call(self, method: str, *arguments: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Call a method of all of them at once."""
        given = each or [arguments] * len(self)
        asked = [actor.call.remote(method, *its) for actor, its in zip(self._actors, given, strict=True)]
        return self._answers(asked, method, self._patience_s)

    def share(self, method: str) -> Any:
        """What a method gives, of all of them; it travels from node to node when it is used."""
        asked = [actor.call.remote(method) for actor in self._actors]
        return dict(enumerate(self._answers(asked, method, self._patience_s)))

    def revive(self) -> None:
        """Wait until Ray has started those that died again."""
        until = time.monotonic() + START_S
        while True:
            try:
                self._answers([actor.call.remote("address") for actor in self._actors], "address", 10.0)
                return
            except ServersLostError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def close(self) -> None:
        """End all of them."""
        from ray.util.placement_group import remove_placement_group

        for actor in self._actors:
            self._ray.kill(actor)
        remove_placement_group(self._group)

    def _answers(self, asked: list[Any], method: str, patience_s: float) -> list[Any]:
        """All answers; as soon as one server is lost the others are not waited for, as they wait for it."""
        from ray.exceptions import GetTimeoutError, RayActorError

        until, waiting = time.monotonic() + patience_s, list(asked)
        while waiting:
            done, waiting = self._ray.wait(waiting, timeout=max(0.0, until - time.monotonic()))
            if not done:
                raise DeadlineError(f"servers did not answer to {method!r} within {patience_s:g} s.")
            try:
                self._ray.get(done[0], timeout=patience_s)
            except RayActorError as why:
                raise ServersLostError(f"a server was lost: {_first_line(why)}") from why
            except (PeerLostError, WireError) as why:
                raise ServersLostError(_first_line(why)) from why
            except GetTimeoutError as why:
                raise DeadlineError(f"a server's answer to {method!r} did not come.") from why
        answers: list[Any] = self._ray.get(asked)
        return answers


class _RayActor(Actor):
    """A server as Ray runs it: listening on the address its node is known by."""

    def __init__(self, make: Callable[..., Any], node_job: NodeJob, server: int) -> None:
        import ray

        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        super().__init__(make, node_job, server, host)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1][:500] if str(error).strip() else type(error).__name__
