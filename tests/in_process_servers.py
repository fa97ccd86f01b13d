"""Remote servers without Ray: the same nodes, in this process, over real sockets."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from copy import deepcopy
from dataclasses import replace
from typing import Any

from dorylus.pools import PoolHandle, TensorPool
from dorylus.runtime import ServersLostError
from dorylus.runtime.fence import PeerLostError
from dorylus.runtime.graph_node import GraphNode
from dorylus.runtime.local import local_shard
from dorylus.runtime.parameter_node import ParameterNode
from dorylus.runtime.remote import RemoteRuntime
from dorylus.runtime.runtime import Job
from dorylus.wire import WireError
from dorylus.wire.connection import new_secret

DEADLINE_S = 60.0


class InProcess:
    """Servers of one kind; a killed one is missing until ``revive``."""

    def __init__(self, make: Callable[[int], Any], count: int) -> None:
        self._make = make
        self.nodes: list[Any] = [make(number) for number in range(count)]
        self._threads = ThreadPoolExecutor(
            4 * count
        )  # calls of a lost session that still hang, and those of the next one

    def __len__(self) -> int:
        return len(self.nodes)

    def call(self, method: str, *arguments: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        given = each or [arguments] * len(self)
        return self.answers(
            [self._threads.submit(self._one, node, method, its) for node, its in zip(self.nodes, given, strict=True)]
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        return [self._threads.submit(self._one, node, method, arguments) for node in self.nodes]

    def answers(self, pending: Any) -> list[Any]:
        """All answers; as soon as one server is lost the others are not waited for, as with an engine."""
        for future in as_completed(pending, DEADLINE_S):
            future.result()
        return [future.result() for future in pending]

    def kill(self, number: int) -> None:
        node, self.nodes[number] = self.nodes[number], None
        node.close()

    def revive(self) -> None:
        self.nodes = [self._make(k) if node is None else node for k, node in enumerate(self.nodes)]

    def close(self) -> None:
        for node in self.nodes:
            if node is not None:
                node.close()
        self._threads.shutdown()

    def _one(self, node: Any, method: str, arguments: tuple[Any, ...]) -> Any:
        if node is None:
            raise ServersLostError("it was killed.")
        try:
            return getattr(node, method)(*arguments)
        except (PeerLostError, WireError) as error:
            raise ServersLostError(str(error)) from error
        except Exception as error:
            if node in self.nodes:
                raise
            raise ServersLostError("it was killed at work.") from error


def in_process_servers(job: Job, pool: TensorPool, threads: int = 1) -> tuple[InProcess, InProcess]:
    """The graph servers and the parameter servers of a job: every node has a job of its own, as if it had been sent."""
    secret, host = new_secret(), "127.0.0.1"

    def graph_node(server: int) -> GraphNode:
        own = replace(job, threads=threads)
        shard = local_shard(job.graph, job.cut, job.saved, server)
        return GraphNode(own, shard, lambda *_: PoolHandle(pool), host, secret)

    def parameter_node(server: int) -> ParameterNode:
        return ParameterNode(replace(job, program=deepcopy(job.program)), server, host)

    count = 1 if job.training is None else job.training.parameter_servers
    return InProcess(graph_node, job.cut.num_servers), InProcess(parameter_node, count)


def remote_runtime(job: Job, pool: TensorPool, threads: int = 1, **options: Any) -> RemoteRuntime:
    """A runtime of such servers."""
    return RemoteRuntime(job, lambda job: in_process_servers(job, pool, threads), **options)
