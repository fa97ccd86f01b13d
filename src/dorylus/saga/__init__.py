"""Programs, layers, and the stages they become. Model names live here and nowhere else."""

from dorylus.saga.builders import BUILDERS, build
from dorylus.saga.gat import GAT
from dorylus.saga.gcn import GCN
from dorylus.saga.gin import GIN
from dorylus.saga.layer import Layer
from dorylus.saga.lower import Plan, Savings, lower
from dorylus.saga.program import Program, Recipe
from dorylus.saga.sage import SAGE

__all__ = ["BUILDERS", "GAT", "GCN", "GIN", "SAGE", "Layer", "Plan", "Program", "Recipe", "Savings", "build", "lower"]
