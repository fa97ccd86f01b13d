"""Graphs made from a seed, for examples, tests and benchmarks: the same arguments always give the same graph."""

from dorylus.graph.generators.block_model import communities
from dorylus.graph.generators.cycle import ring
from dorylus.graph.generators.recursive import rmat

__all__ = ["communities", "ring", "rmat"]
