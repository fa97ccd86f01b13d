"""Programs, layers, and the stages they become. Model names appear in this package only."""

from dorylus.saga import dense
from dorylus.saga.builders import BUILDERS, build, gat, gcn, gin, sage
from dorylus.saga.checks import check_bodies
from dorylus.saga.columns import LINE, in_blocks
from dorylus.saga.dense import IGNORED, Call, Kept, Mode, Reply, Saved, Targets, kept_bytes, loss_sum
from dorylus.saga.gat import GAT
from dorylus.saga.gcn import GCN
from dorylus.saga.gin import GIN
from dorylus.saga.layer import Layer, Rows
from dorylus.saga.lower import Plan, Savings, Work, lower, measure
from dorylus.saga.program import Program, Recipe
from dorylus.saga.reductions import GatherSpec, GradientTask, Reduction, RowMatrix
from dorylus.saga.sage import SAGE
from dorylus.saga.sparse import SparseRows
from dorylus.saga.stages import ApplyEdge, ApplyVertex, Body, Gather, Loss, Scatter, Slot, Stage
from dorylus.saga.table import Steps, steps_of

__all__ = [
    "BUILDERS",
    "GAT",
    "GCN",
    "GIN",
    "IGNORED",
    "LINE",
    "SAGE",
    "ApplyEdge",
    "ApplyVertex",
    "Body",
    "Call",
    "Gather",
    "GatherSpec",
    "GradientTask",
    "Kept",
    "Layer",
    "Loss",
    "Mode",
    "Plan",
    "Program",
    "Recipe",
    "Reduction",
    "Reply",
    "RowMatrix",
    "Rows",
    "Saved",
    "Savings",
    "Scatter",
    "Slot",
    "SparseRows",
    "Stage",
    "Steps",
    "Targets",
    "Work",
    "build",
    "check_bodies",
    "dense",
    "gat",
    "gcn",
    "gin",
    "in_blocks",
    "kept_bytes",
    "loss_sum",
    "lower",
    "measure",
    "sage",
    "steps_of",
]
