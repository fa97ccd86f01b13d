"""Cutting the graph: who owns which vertex, intervals by edge work, and the shard a graph server owns."""

from dorylus.partition.arrangement import Arrangement
from dorylus.partition.between import Between
from dorylus.partition.cut import Cut, make_cut, plain_cut
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
from dorylus.partition.paged_arrangement import PagedArrangement
from dorylus.partition.partitioning import METHODS, Partitioning, make_partitioning
from dorylus.partition.quality import Quality
from dorylus.partition.shard import Shard, cut_shard, whole_shard
from dorylus.partition.shard_store import Shards, open_shards, recut, save_shards

__all__ = [
    "METHODS",
    "Arrangement",
    "Between",
    "Cut",
    "Ghosts",
    "Layout",
    "PagedArrangement",
    "Partitioning",
    "Quality",
    "SendList",
    "Shard",
    "Shards",
    "check_intervals",
    "choose_intervals",
    "cut_shard",
    "make_cut",
    "make_layout",
    "make_partitioning",
    "needed_levels",
    "open_shards",
    "plain_cut",
    "recut",
    "rows_per_unit",
    "save_shards",
    "settle_levels",
    "whole_shard",
]
