"""The work of processes that train under a memory limit and are killed."""

from pathlib import Path

import numpy as np

import dorylus
from dorylus.memory import SpillSettings
from dorylus.memory.layout import Figures
from dorylus.memory.limit import RunLimits, RunRequest
from dorylus.saga.columns import in_blocks
from dorylus.servers import SpillPolicy
from dorylus.training import assembly

EPOCHS = 16
# A server that forks such processes imports these once, which takes seconds. Torch imports the last with the first
# optimiser.
PRELOAD = ["dorylus.training.trainer", "safetensors.torch", "torch._dynamo"]
NUM_VERTICES, NUM_FEATURES, NUM_CLASSES = 700, 40, 19


def small_graph() -> dorylus.Graph:
    """A random graph whose matrices have pages of their own in every interval."""
    rng = np.random.default_rng(3)
    source, destination = np.unique(rng.integers(0, NUM_VERTICES, (2, 6000)), axis=1)
    part = rng.integers(0, 4, NUM_VERTICES)
    return dorylus.Graph.from_edges(
        source,
        destination,
        NUM_VERTICES,
        undirected=False,
        features=rng.standard_normal((NUM_VERTICES, NUM_FEATURES), dtype=np.float32),
        labels=rng.integers(0, NUM_CLASSES, NUM_VERTICES),
        train_mask=part < 2,
        val_mask=part == 2,
        test_mask=part == 3,
    )


def train(store: Path, run_dir: Path, scratch: Path) -> None:
    """Train in a run folder, or resume there."""
    _keep_a_limit(scratch)
    graph, model = dorylus.Graph.open(store), dorylus.sage(hidden=40, dropout=0.5)
    if (run_dir / "run.toml").exists():
        dorylus.resume(run_dir, graph, model)
        return
    settings = {"epochs": EPOCHS, "eval_every": 8, "checkpoint_every": 2, "seed": 1, "threads": 2, "deadline_s": 60}
    dorylus.train(graph, model, memory="1GiB", run_dir=str(run_dir), **settings)


def _keep_a_limit(scratch: Path) -> None:
    def limits(request: RunRequest) -> RunLimits:
        plans = [in_blocks(plan, 2) for plan in (request.training, request.evaluation)]
        how = SpillSettings(scratch=str(scratch), policy=SpillPolicy(), static_blocks=2)
        return RunLimits(plans[0], plans[1], 5, how, False, Figures(), 0)

    assembly.limits = limits  # this process makes no other run
