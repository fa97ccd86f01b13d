"""A small graph over a few servers: their shards, the contexts of their passes, and the messages between them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

import dorylus
from dorylus.backends.backend import NumberFormat
from dorylus.backends.host import NativeBackend
from dorylus.graph.adjacency_matrix import Degrees
from dorylus.partition import LocalShard, make_partition_plan, make_shard, needed_levels
from dorylus.pipeline import Kind, Task
from dorylus.saga import Savings, lower
from dorylus.saga.stages import Gather
from dorylus.servers import Arena, GhostMessage, Peers
from dorylus.servers.graph.matrices import Matrices
from dorylus.servers.graph.pass_context import PassContext

NUM_VERTICES = 30
NUM_LAYERS = 2


def small_graph(*, directed: bool, seed: int = 0) -> dorylus.Graph:
    """Thirty vertices and some weighted edges between them; the last two have none."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, NUM_VERTICES - 2, (2, 60))
    source, destination = np.unique(ends if directed else np.sort(ends, axis=0), axis=1)
    return dorylus.Graph.from_edges(
        source,
        destination,
        NUM_VERTICES,
        undirected=not directed,
        edge_weight=rng.uniform(0.5, 2.0, len(source)).astype(np.float32),
        features=rng.standard_normal((NUM_VERTICES, 3), dtype=np.float32),
    )


def small_shards(*, directed: bool = True, servers: int = 3, pruned: bool = True, seed: int = 0) -> list[LocalShard]:
    """The shards of a small graph, two intervals each; pruned: the loss reads the first six vertices only."""
    graph = small_graph(directed=directed, seed=seed)
    parts = np.random.default_rng(seed).permutation(np.arange(NUM_VERTICES, dtype=np.int32) % servers)
    deepest = np.full(NUM_VERTICES, NUM_LAYERS, np.int8)
    if pruned:
        deepest = needed_levels(graph.indptr, graph.indices, np.arange(NUM_VERTICES) < 6, NUM_LAYERS)
    order = np.arange(NUM_VERTICES, dtype=np.int32)
    plan = make_partition_plan(graph.in_degrees(), order, parts, servers, deepest, NUM_LAYERS, [2] * servers)
    degrees = Degrees.of(graph)
    return [LocalShard(make_shard(graph, parts, k, degrees=degrees), plan, graph) for k in range(servers)]


def context_of(shard: LocalShard, *, bf16: bool = False) -> PassContext:
    """The context of a pass for training, with all matrices in memory."""
    backend = NativeBackend()
    number_format = NumberFormat.BF16 if bf16 else NumberFormat.FLOAT32
    matrices = Matrices(backend, Arena(backend))
    return PassContext(shard, shard.layout, shard.ghosts, shard.out_ghosts, matrices, True, 0, number_format, backend)


class MessageBus:
    """Keeps the messages that servers post to each other until a test delivers them."""

    def __init__(self, shards: Sequence[LocalShard]) -> None:
        self.shards = shards
        self.posted: list[tuple[int, int, GhostMessage]] = []  # from, to, what

    def peers(self, shard: LocalShard) -> Peers:
        """The peers of one server, as a group of servers has them."""
        others = [other for other in self.shards if other is not shard]
        return Peers(
            shard.partition_plan.bounds,
            {other.server: shard.send_list(other.ghosts) for other in others},
            {other.server: shard.send_list(other.out_ghosts) for other in others},
            lambda peer, message: self.posted.append((shard.server, peer, message)),
        )


def task_of(kind: Kind, interval: int, step: int = 0, epoch: int = 0) -> Task:
    """A task outside any schedule."""
    return Task(epoch, 0, interval, step, kind)


class Messages(dorylus.Layer):
    """A layer with a dense ApplyEdge."""

    reduce = "sum"

    def __init__(self, in_columns: int, out_columns: int) -> None:
        super().__init__(in_columns, out_columns)
        self.lin = nn.Linear(in_columns, out_columns)

    def prepare(self, x: Tensor) -> Tensor:
        return self.lin(x)

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor:
        return (source + destination) * weight


def edge_gather() -> Gather:
    """The last gather over edges of a program of two such layers; its rows need gradients."""
    torch.manual_seed(0)
    program = dorylus.Program([Messages(3, 4), Messages(4, 2)])
    plan = lower(program, sparse_features=False, training=True, savings=Savings())
    return [stage for stage in plan.stages if isinstance(stage, Gather)][-1]
