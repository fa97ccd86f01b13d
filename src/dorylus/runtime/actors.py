"""What a server's process is given, and the servers it makes of that. Knows of no engine."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from dorylus.errors import DataError
from dorylus.graph import open_vertices
from dorylus.partition import LocalShard, open_shards
from dorylus.runtime.graph_node import GraphNode
from dorylus.runtime.job import Job
from dorylus.runtime.node_pool import MakePool
from dorylus.runtime.parameter_node import ParameterNode
from dorylus.wire import new_secret


@dataclass(frozen=True, kw_only=True)
class NodeJob:
    """A job as it travels: without the graph, which every server opens for itself, only its own shard.

    ``store`` and ``shards`` are folders that every node can read. ``make_pool`` makes a server's own pool.
    """

    job: Job
    store: str
    shards: str
    make_pool: MakePool
    secret: bytes = field(default_factory=new_secret, repr=False)  # no secret in any log

    def here(self) -> Job:
        """The job on this node."""
        return replace(self.job, graph=open_vertices(self.store), saved=open_shards(self.shards))


def graph_node(node_job: NodeJob, server: int, host: str) -> GraphNode:
    """A graph server of the job."""
    try:
        job = node_job.here()
        assert job.saved is not None
        shard = LocalShard(job.saved.shard(server), job.cut, job.graph)
    except DataError as error:
        raise DataError(
            f"the node {host} cannot open its shard: {error} Every node must see the store under the same path: share "
            "the folder, or give an address that fsspec knows."
        ) from error
    return GraphNode(job, shard, node_job.make_pool, host, node_job.secret)


def parameter_node(node_job: NodeJob, server: int, host: str) -> ParameterNode:
    """A parameter server of the job."""
    return ParameterNode(node_job.job, server, host)


class Actor:
    """A server in a process of its own, as an engine sees it."""

    def __init__(self, kind: Callable[[NodeJob, int, str], Any], node_job: NodeJob, server: int, host: str) -> None:
        self._node = kind(node_job, server, host)

    def call(self, method: str, *arguments: Any) -> Any:
        """Have the server do something."""
        return getattr(self._node, method)(*arguments)
