"""Cutting the graph: intervals by edge work, and the shard a graph server owns."""

from dorylus.partition.layout import (
    Layout,
    check_intervals,
    choose_intervals,
    make_layout,
    needed_levels,
    settle_levels,
)
from dorylus.partition.shard import Shard

__all__ = ["Layout", "Shard", "check_intervals", "choose_intervals", "make_layout", "needed_levels", "settle_levels"]
