"""Graphs: what they are, where they come from, where they are kept, and the matrix that Gather multiplies by."""

from dorylus.graph.adjacency import Adjacency, adjacency
from dorylus.graph.datasets import load
from dorylus.graph.features import SparseFeatures
from dorylus.graph.generators import communities, ring, rmat
from dorylus.graph.graph import Graph
from dorylus.graph.reorder import order

__all__ = ["Adjacency", "Graph", "SparseFeatures", "adjacency", "communities", "load", "order", "ring", "rmat"]
