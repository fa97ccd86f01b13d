"""Partitioning the graph: the server of each vertex, intervals of even edge work, and the shards."""

from dorylus.partition.edge_reader import scratch_beside
from dorylus.partition.ghosts import Ghosts, SendList
from dorylus.partition.layout import (
    Layout,
    check_intervals,
    choose_intervals,
    make_layout,
    needed_levels,
    rows_per_unit,
    settle_levels,
)
from dorylus.partition.local_shard import Between, LocalShard, VertexSource
from dorylus.partition.paged_shard import PagedLocalShard, interval_in_memory
from dorylus.partition.partition_plan import PartitionPlan, make_partition_plan, plain_partition_plan
from dorylus.partition.partitioning import METHODS, Partitioning, Quality, make_partitioning
from dorylus.partition.shard import Ids, make_shard, whole_shard
from dorylus.partition.shard_store import (
    SHARDS,
    Shards,
    check_joining,
    open_shards,
    partition_needs,
    save_shards,
    save_shards_once,
    structure_of,
)

__all__ = [
    "METHODS",
    "SHARDS",
    "Between",
    "Ghosts",
    "Ids",
    "Layout",
    "LocalShard",
    "PagedLocalShard",
    "PartitionPlan",
    "Partitioning",
    "Quality",
    "SendList",
    "Shards",
    "VertexSource",
    "check_intervals",
    "check_joining",
    "choose_intervals",
    "interval_in_memory",
    "make_layout",
    "make_partition_plan",
    "make_partitioning",
    "make_shard",
    "needed_levels",
    "open_shards",
    "partition_needs",
    "plain_partition_plan",
    "rows_per_unit",
    "save_shards",
    "save_shards_once",
    "scratch_beside",
    "settle_levels",
    "structure_of",
    "whole_shard",
]
