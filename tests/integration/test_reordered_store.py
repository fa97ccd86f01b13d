"""A store whose vertices were reordered trains to the same losses, and predicts under the user's own vertex ids."""

from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

import dorylus

N = 200


def trained(folder: Path, name: str, **options: Any) -> dorylus.Result:
    """A model of the graph in ``folder``, ingested with these options."""
    files = {each: folder / f"{each}.npy" for each in ("features", "labels", "train")}
    edges = tuple(np.load(folder / "edges.npy"))
    graph = dorylus.Graph.ingest(edges, folder / name, undirected=False, **files, **options)
    return dorylus.train(graph, dorylus.gcn(hidden=8, dropout=0.0), epochs=5, seed=0)


def test_training_and_predictions_do_not_depend_on_the_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "edges.npy", (rng.random((2, 3000)) ** 2 * N).astype(np.int64))
    np.save(tmp_path / "features.npy", rng.random((N, 6), dtype=np.float32))
    np.save(tmp_path / "labels.npy", rng.integers(0, 3, N))
    np.save(tmp_path / "train.npy", rng.random(N) < 0.6)
    plain, reordered = trained(tmp_path, "plain"), trained(tmp_path, "reordered", reorder="degree")
    expected = plain.predict("logits")
    reordered.predict("logits", out=tmp_path / "x.npy")
    rows, ids = np.load(tmp_path / "x.npy"), np.load(tmp_path / "x.ids.npy")
    assert not np.array_equal(ids, np.arange(N))
    assert sorted(ids.tolist()) == list(range(N))
    np.testing.assert_allclose(rows, expected[ids], rtol=1e-4, atol=1e-5)
    reordered.predict("classes", out=tmp_path / "x.parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table["vertex"].to_pylist() == ids.tolist()
