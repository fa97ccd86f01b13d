"""Classes and embeddings of every vertex, as NumPy files; again later from the weights in the run folder."""

import tempfile
from pathlib import Path

import numpy as np

import dorylus
from dorylus import predict_from

graph = dorylus.communities(num_vertices=3_000)
model = dorylus.sage(hidden=32, num_layers=3)

with tempfile.TemporaryDirectory() as folder:
    run_dir = Path(folder, "run")
    result = dorylus.train(graph, model, epochs=30, run_dir=run_dir)
    np.save(Path(folder, "classes.npy"), result.predict("classes"))
    np.save(Path(folder, "embeddings.npy"), result.predict("embeddings"))  # of the last hidden layer
    np.save(Path(folder, "first.npy"), result.predict("embeddings", layer=0))
    for path in sorted(Path(folder).glob("*.npy")):
        array = np.load(path)
        print(f"{path.name:15} {array.dtype!s:8} {array.shape}")

    # A run started by `dorylus train` needs neither graph nor model here: its folder describes them.
    again = predict_from(run_dir, "classes", graph=graph, model=model)
    print(f"again from the run folder, the same: {np.array_equal(again, np.load(Path(folder, 'classes.npy')))}")

centre = {k: result.predict("embeddings")[graph.labels == k].mean(axis=0) for k in range(2)}
print(f"distance between the centres of classes 0 and 1: {np.linalg.norm(centre[0] - centre[1]):.2f}")
