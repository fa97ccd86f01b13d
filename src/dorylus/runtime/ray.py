"""Servers as actors of a Ray cluster: Ray places them, supervises them and starts them again.

Ray carries the calls of the driver to the servers; rows, weights and gradients travel over the servers' own sockets.
Graph servers are spread over the nodes, one each where there are enough; every server has cores of its own.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dorylus.errors import ConfigError, DataError, DorylusError, given
from dorylus.graph import open_vertices
from dorylus.partition import LocalShard, open_shards
from dorylus.pools import connected
from dorylus.runtime.fence import Lease, PeerLostError, Renewal
from dorylus.runtime.graph_node import GraphNode, MakePool
from dorylus.runtime.parameter_node import ParameterNode
from dorylus.runtime.runtime import Job, NotRevivedError, ServersLostError
from dorylus.wire import WireError, new_secret

SETTING = given("cluster", "ray")
PARAMETER_BYTES = 1 << 26  # memory that Ray reserves for a parameter server; no core, as it mostly waits
START_S = 120.0  # for cores that other jobs may still free, and for servers to start
PULSE_S = 5.0  # how often the driver checks that servers that have not answered yet still work
SILENT_S = 30.0  # a server that neither answers nor works for so long is lost
STUCK_S = 60.0  # a server that Ray reports as alive but that does not answer is restarted after so long
END_S = 5.0  # for a server to disconnect before its process is killed


@dataclass(frozen=True, kw_only=True)
class NodeJob:
    """A job as it is sent to servers: without the graph, of which every server opens its own shard.

    ``store`` and ``shards`` are folders that every node can read. ``make_pool`` makes a server's own pool.
    """

    job: Job
    store: str
    shards: str
    make_pool: MakePool
    secret: bytes = field(default_factory=new_secret, repr=False)  # no secret in any log

    def here(self) -> Job:
        """The job with the graph as this node opens it."""
        return replace(self.job, graph=open_vertices(self.store), saved=open_shards(self.shards))


def graph_node(node_job: NodeJob, server: int, host: str) -> GraphNode:
    """Make a graph server of the job on this node."""
    try:
        job = node_job.here()
        assert job.saved is not None
        shard = LocalShard(job.saved.shard(server), job.cut, job.graph)
    except DataError as error:
        raise DataError(
            f"the node {host} cannot open its shard: {error.message} Every node must see the store under the same "
            "path: share the folder, or give an address that fsspec supports."
        ) from error
    return GraphNode(job, shard, node_job.make_pool, host, node_job.secret)


def parameter_node(node_job: NodeJob, server: int, host: str) -> ParameterNode:
    """Make a parameter server of the job on this node."""
    return ParameterNode(node_job.job, server, host)


class Actor:
    """A server in a process of its own."""

    def __init__(self, kind: Callable[[NodeJob, int, str], Any], node_job: NodeJob, server: int, host: str) -> None:
        self._node = kind(node_job, server, host)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the server."""
        return getattr(self._node, method)(*arguments)


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """Which Ray cluster (None: the one this machine belongs to), and the cores of a graph server.

    ``revive_s``: how long the driver waits for lost servers to come back.
    """

    address: str | None = None
    cpus: float = 1.0
    revive_s: float = 300.0


def ray_servers(job: Job, node_job: NodeJob, settings: RaySettings) -> "tuple[RayServers, RayServers]":
    """Start the servers of a job; a job that does not fit on the cluster is refused immediately."""
    ray = connected(settings.address, SETTING)
    assert job.training is not None
    graphs, parameters = job.cut.num_servers, job.training.parameter_servers
    group = _placed(ray, graphs, parameters, settings)
    shared = ray.put(node_job)
    in_last = [graphs] * parameters
    free_group = partial(ray.util.remove_placement_group, group)  # by the servers that are closed last
    return (
        RayServers(ray, GraphServerActor, shared, group, list(range(graphs)), settings.cpus, settings.revive_s),
        RayServers(ray, ParameterServerActor, shared, group, in_last, 0, settings.revive_s, free_group),
    )


def settled_threads(address: str | None, servers: int, threads: int | None) -> int:
    """How many threads each graph server has: the given number if it fits on the cluster, by default an equal share."""
    ray = connected(address, SETTING)
    cores = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    threads = threads or share_of(cores, servers)
    if not _could_fit(cores, [threads] * servers):
        raise _no_room(ray, servers, threads)
    return threads


def share_of(cores: Iterable[float], servers: int) -> int:
    """The most threads that each of ``servers`` can have on nodes with these cores; 1 if there are too few."""
    nodes = list(cores)
    most = int(max(nodes, default=1))
    return next((each for each in range(most, 1, -1) if sum(int(has // each) for has in nodes) >= servers), 1)


def _placed(ray: Any, graphs: int, parameters: int, settings: RaySettings) -> Any:
    """A placement group: a bundle for each graph server, and the last one for all parameter servers."""
    from ray.util.placement_group import placement_group, remove_placement_group

    bundles = [{"CPU": settings.cpus} for _ in range(graphs)] + [{"memory": PARAMETER_BYTES * parameters}]
    group = placement_group(bundles, strategy="SPREAD")  # one a node where there are enough nodes
    cores = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    if group.wait(START_S if _could_fit(cores, [settings.cpus] * graphs) else 1.0):
        return group
    remove_placement_group(group)
    raise _no_room(ray, graphs, settings.cpus)


def _no_room(ray: Any, servers: int, cpus: float) -> ConfigError:
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    has, free = (each.get("CPU", 0) for each in (ray.cluster_resources(), ray.available_resources()))
    return ConfigError(
        f"{servers} graph servers of {cpus:g} cores do not fit: the Ray cluster has {nodes} nodes with {has:g} cores, "
        f"{free:g} of them free. Use fewer servers or threads, or add nodes."
    )


def _could_fit(nodes: Iterable[float], bundles: Iterable[float]) -> bool:
    """Whether nodes with these cores could hold the bundles if no other job used them."""
    left = sorted(nodes)
    for bundle in sorted(bundles, reverse=True):
        if not left or left[-1] < bundle:
            return False
        left = sorted([*left[:-1], left[-1] - bundle])
    return True


@dataclass(frozen=True)
class _FailedCall:
    """An error as an answer: Ray prints errors that are raised and then never fetched."""

    error: DorylusError


class _RayActor:
    """A server as Ray runs it. Its process starts empty: the driver calls :meth:`settle` after every start."""

    def __init__(self) -> None:
        self._actor: Actor | None = None
        self._settling = threading.Lock()
        self._lock, self._calls = threading.Lock(), 0
        self._lease = Lease()
        self._lease.watch()

    def settle(self, make: Callable[[NodeJob, int, str], Any], node_job: NodeJob, server: int) -> _FailedCall | None:
        """Become a server, which listens on the address of its node in Ray."""
        import ray

        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        with self._counted(), self._settling:
            try:
                self._actor = self._actor or Actor(make, node_job, server, host)
            except DorylusError as error:
                return _FailedCall(error)
        return None

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the server."""
        if self._actor is None:
            return _FailedCall(PeerLostError("a server was restarted, and is not set up yet."))
        with self._counted():
            try:
                return self._actor.call(method, *arguments)
            except DorylusError as error:
                return _FailedCall(error)

    def pulse(self) -> int:
        """The number of calls in progress."""
        self._lease.renew()
        return self._calls

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._lease.renew()
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1


class GraphServerActor(_RayActor):
    """Ray lists the process by this name."""

    make, noun = staticmethod(graph_node), "graph server"


class ParameterServerActor(_RayActor):
    """Ray lists the process by this name."""

    make, noun = staticmethod(parameter_node), "parameter server"


class RayServers:
    """The graph servers, or the parameter servers, of a run, as actors.

    The driver waits for an answer only while its server works on it; the server's own deadlines end that.
    """

    def __init__(
        self,
        ray: Any,
        kind: type[GraphServerActor | ParameterServerActor],
        shared: Any,
        group: Any,
        bundles: Sequence[int],
        cpus: float,
        revive_s: float,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._ray, self._kind, self._revive_s, self._end = ray, kind, revive_s, end
        self._each = [(kind.make, shared, number) for number in range(len(bundles))]  # the arguments of settle for each
        actor = ray.remote(kind)
        self._actors = [
            actor.options(
                num_cpus=cpus,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=8,  # calls of lost sessions that still hang, the next session's call, and a pulse
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle),
            ).remote()
            for bundle in bundles
        ]
        self._settled = False
        self._settle()  # all start at the same time
        self._renewal = Renewal(self._renew)

    def __len__(self) -> int:
        return len(self._actors)

    def call(self, method: str, *arguments: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Call a method of all of them at once."""
        if not self._settled:
            self.revive()
        given = each or [arguments] * len(self)
        pending = [actor.call.remote(method, *its) for actor, its in zip(self._actors, given, strict=True)]
        return self.answers(pending)

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of all of them without waiting."""
        return [actor.call.remote(method, *arguments) for actor in self._actors]

    def revive(self) -> None:
        """Wait until all answer, and set up those that Ray has started since."""
        begun_s, restarted, lost = time.monotonic(), False, list(self._actors)
        limit_s = self._revive_s if self._settled else max(self._revive_s, START_S)
        while lost := self._not_answering(lost):
            waited_s = time.monotonic() - begun_s
            if waited_s > limit_s:
                raise NotRevivedError(f"{self._named(lost)} not there within {limit_s:g} s.")
            if waited_s > min(limit_s / 2, STUCK_S) and not restarted:  # the process may hang
                restarted = True
                for actor in lost:
                    self._ray.kill(actor, no_restart=False)
            time.sleep(0.2)
        self.answers(self._settle())
        self._settled = True

    def close(self) -> None:
        """Stop all of them."""
        self._renewal.close()
        self._ray.wait([actor.call.remote("close") for actor in self._actors], num_returns=len(self), timeout=END_S)
        for actor in self._actors:
            self._ray.kill(actor)
        self._end()

    def _renew(self) -> None:
        """Renew the lease of all servers."""
        with suppress(Exception):  # Ray may be shutting down
            for actor in self._actors:
                actor.pulse.remote()

    def _settle(self) -> list[Any]:
        """Set up all servers; those that are set up already do nothing."""
        return [actor.settle.remote(*its) for actor, its in zip(self._actors, self._each, strict=True)]

    def answers(self, pending: Sequence[Any]) -> list[Any]:
        """All answers. When one server is lost, the others are not waited for, as they wait for the lost one."""
        answers: dict[Any, Any] = {}
        waiting, active_s = dict(zip(pending, self._actors, strict=True)), time.monotonic()
        while waiting:
            done, _ = self._ray.wait(list(waiting), timeout=PULSE_S)
            for each in done:
                answers[each] = self._answer(each)
                del waiting[each]
            if done or self._at_work(list(waiting.values())):
                active_s = time.monotonic()
            elif time.monotonic() - active_s > SILENT_S:
                lost = self._named(list(waiting.values()))
                raise ServersLostError(f"{lost} neither working nor answering for {SILENT_S:g} s.")
        return [answers[each] for each in pending]

    def _at_work(self, actors: Sequence[Any]) -> bool:
        """Whether all these servers have calls in progress."""
        pulses = [actor.pulse.remote() for actor in actors]
        done, silent = self._ray.wait(pulses, num_returns=len(pulses), timeout=PULSE_S)
        return all(self._answer(each) for each in done) and not silent

    def _named(self, actors: Sequence[Any]) -> str:
        """Some servers, as the subject of a sentence."""
        numbers = ", ".join(str(self._actors.index(actor)) for actor in actors)
        kind = self._kind.noun + "s" * (len(actors) > 1)
        return f"{kind} {numbers} {'are' if len(actors) > 1 else 'is'}"

    def _not_answering(self, actors: Sequence[Any]) -> list[Any]:
        """The servers that do not answer within PULSE_S."""
        pending = {actor.pulse.remote(): actor for actor in actors}
        done, lost = self._ray.wait(list(pending), num_returns=len(pending), timeout=PULSE_S)
        for each in done:
            try:
                self._answer(each)
            except ServersLostError:
                lost.append(each)
        return [pending[each] for each in lost]

    def _answer(self, ready: Any) -> Any:
        """An answer that has arrived; an error is raised."""
        from ray.exceptions import RayError, RayTaskError

        try:
            answer = self._ray.get(ready, timeout=SILENT_S)
        except RayTaskError as why:
            raise (why.cause if isinstance(why.cause, DorylusError) else why) from None
        except RayError as why:  # the server is gone, or its node is and the answer with it
            raise ServersLostError(f"a server was lost: {_last_line(why)}") from why
        if not isinstance(answer, _FailedCall):
            return answer
        if isinstance(answer.error, PeerLostError | WireError):
            raise ServersLostError(str(answer.error)) from answer.error
        raise answer.error


def _last_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1][:500] if str(error).strip() else type(error).__name__
