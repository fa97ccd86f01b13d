"""Stop in the middle, go on later, end with the very same weights as a run that was never stopped."""

import tempfile
from pathlib import Path

import torch

import dorylus

graph = dorylus.communities(num_vertices=3_000)
model = dorylus.gcn(hidden=16)
settings = {"epochs": 30, "checkpoint_every": 5, "seed": 7}

with tempfile.TemporaryDirectory() as folder:
    run_dir = Path(folder, "run")
    with dorylus.Trainer(graph, model, run_dir=run_dir, **settings) as trainer:
        trainer.run(12)  # ... and here the machine goes away
        print(f"stopped after epoch {trainer.epoch}; left behind:")
    for path in sorted(run_dir.rglob("*")):
        print(f"  {path.relative_to(run_dir)}{'/' if path.is_dir() else ''}")

    # A graph or model that came as a Python object is given again; `dorylus train` runs need neither.
    resumed = dorylus.resume(run_dir, graph, model)

straight = dorylus.train(graph, model, **settings)
same = all(torch.equal(a, b) for a, b in zip(resumed.model.parameters(), straight.model.parameters(), strict=True))
print(f"resumed to epoch {len(resumed.losses)}, test accuracy {resumed.test_accuracy:.1%}")
print(f"same losses and weights, to the bit, as without the stop: {same and resumed.losses == straight.losses}")
