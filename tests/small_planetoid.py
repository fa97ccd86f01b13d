"""Very small files in the format of the Planetoid sets."""

import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy import sparse


def write_small_set(folder: Path, name: str = "citeseer") -> None:
    """Seven vertices, vertex 5 isolated and missing from test.index, as in Citeseer; a repeated edge, a self loop."""
    folder.mkdir(parents=True, exist_ok=True)
    features = sparse.csr_matrix(np.diag(np.arange(1, 5, dtype=np.float32)))
    one_hot = np.eye(2, dtype=np.int32)
    parts = {
        "x": features[:2],
        "allx": features,
        "tx": sparse.csr_matrix(np.array([[0, 0, 0, 6], [0, 0, 0, 4]], np.float32)),
        "y": one_hot[[0, 1]],
        "ally": one_hot[[0, 1, 0, 1]],
        "ty": one_hot[[1, 0]],
        "graph": defaultdict(list, {0: [1, 1, 4], 1: [0], 2: [2, 6], 4: [0], 5: [], 6: [2]}),
    }
    for part, value in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickle.dumps(value, protocol=3))
    (folder / f"ind.{name}.test.index").write_text("6\n4\n")
