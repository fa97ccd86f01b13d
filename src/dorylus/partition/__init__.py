"""Cutting the graph: who owns which vertex, intervals by edge work, and the shard a graph server owns."""

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
from dorylus.partition.local_shard import Between, LocalShard, Source
from dorylus.partition.needs import check_reuniting, plan_partitioning
from dorylus.partition.paged_shard import PagedLocalShard, at_hand
from dorylus.partition.partition_plan import PartitionPlan, make_cut, plain_cut
from dorylus.partition.partitioning import METHODS, Partitioning, Quality, make_partitioning
from dorylus.partition.reading import scratch_beside
from dorylus.partition.shard import Ids, cut_shard, whole_shard
from dorylus.partition.shard_store import (
    SHARDS,
    Shards,
    open_shards,
    recut,
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
    "Source",
    "at_hand",
    "check_intervals",
    "check_reuniting",
    "choose_intervals",
    "cut_shard",
    "make_cut",
    "make_layout",
    "make_partitioning",
    "needed_levels",
    "open_shards",
    "plain_cut",
    "plan_partitioning",
    "recut",
    "rows_per_unit",
    "save_shards",
    "save_shards_once",
    "scratch_beside",
    "settle_levels",
    "structure_of",
    "whole_shard",
]
