"""What partitioning under a limit will need, known before any work: memory, scratch and disk."""

from dataclasses import dataclass

from dorylus.errors import ConfigError, given
from dorylus.graph import Address, Graph, is_remote
from dorylus.partition.edge_reader import drop_graph_pages, scratch_beside
from dorylus.partition.limit import SLACK, MemoryNeed, check_space, need_of, scratch_space, shards_space, shares_of
from dorylus.partition.shard_store import Shards
from dorylus.process_memory import resident_bytes
from dorylus.sizes import format_bytes, parse_bytes


@dataclass(frozen=True, kw_only=True)
class PartitionNeeds:
    """What partitioning a graph by one method needs at least, and what it will use of the limit and of disks."""

    method: str
    limit: int
    least: int
    worst: MemoryNeed
    block_bytes: int
    scratch_bytes: int
    shards_bytes: int

    def __str__(self) -> str:
        disk = [f"{format_bytes(self.scratch_bytes)} of scratch"] if self.scratch_bytes else []
        disk += [f"{format_bytes(self.shards_bytes)} and ghosts for the shards"] if self.shards_bytes else []
        return (
            f"{self.method}: keeps to {format_bytes(self.limit)}, {format_bytes(self.least)} would do "
            f"({self.worst.vertex_bytes} bytes a vertex); edges in blocks of {format_bytes(self.block_bytes)}"
            + (f"; on disk {', '.join(disk)}" if disk else "")
        )


def partition_needs(
    graph: Graph, servers: int, method: str, memory: int | str, *, out: Address | None = None
) -> PartitionNeeds:
    """What partitioning a graph under a limit needs and, given ``out``, saving its shards there.

    A limit that cannot be kept is refused with one that can; a disk that is too full is refused with the space needed.
    """
    drop_graph_pages(graph)
    steps = [need_of(graph, "divide", servers, method), need_of(graph, "look", servers, method)]
    steps += [need_of(graph, "save", servers, method)] if out is not None else []
    shares = [shares_of(graph, need, memory) for need in steps]
    worst = max(steps, key=lambda need: need.least)
    scratch = 0 if shares[0].in_any_order or method != "stream" else scratch_space(graph, weighted=False)
    shards = 0 if out is None else shards_space(graph, servers)
    beside = scratch_beside(graph, out)
    if scratch:
        check_space(beside, scratch, "sorting the edges")
    if out is not None and not is_remote(out):
        check_space(beside, shards, "writing the shards")
    return PartitionNeeds(
        method=method, limit=parse_bytes(memory), least=resident_bytes() + SLACK + worst.least, worst=worst,
        block_bytes=4 * shares[0].block_edges, scratch_bytes=scratch, shards_bytes=shards,
    )  # fmt: skip


def check_joining(shards: Shards, memory: int | str) -> None:
    """Refuse shards that cannot be joined within a limit: their graph is held in memory."""
    limit, weighted = parse_bytes(memory), "shard0.in_edge_weight" in shards.manifest["arrays"]
    graph = shards.num_edges * (8 if weighted else 4) + 16 * shards.num_vertices
    needed = resident_bytes() + SLACK + graph + 32 * shards.num_edges // shards.num_servers
    if needed > limit:
        raise ConfigError(
            f"{given('memory')} is {limit:,} bytes ({format_bytes(limit)}), but putting the shards in {shards.folder} "
            "together takes "
            f"{format_bytes(needed)}: their edges are held in memory. Give more, or partition the graph's own store."
        )
