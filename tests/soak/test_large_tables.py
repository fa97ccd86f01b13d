"""Tables larger than memory: 20 million edges between text ids become a store within 300 MiB."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from dorylus.graph import Graph
from planted_tables import write_planted_tables

NUM_VERTICES, NUM_EDGES, LIMIT_MIB = 1_000_000, 20_000_000, 300
LONG_S = 1200
pytestmark = pytest.mark.timeout(LONG_S)


def limited(*arguments: str, folder: Path) -> int:
    """Run a command; returns the largest size of its process in MiB."""
    process = subprocess.Popen([sys.executable, "-m", "dorylus.cli", *arguments], cwd=folder)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss >> 10


def test_tables_become_a_store_within_the_limit_and_predictions_keep_the_ids(tmp_path: Path) -> None:
    write_planted_tables(tmp_path, NUM_VERTICES, NUM_EDGES)
    columns = ("--vertices", "vertices.parquet", "--id", "paper", "--label", "field", "--features", "x*,venue")
    split = ("--split", "train=.6,val=.2", "--memory", f"{LIMIT_MIB}MiB")
    assert limited("ingest", "edges.csv", "store", *columns, *split, folder=tmp_path) <= LIMIT_MIB
    graph = Graph.open(tmp_path / "store")
    given = parquet.read_table(tmp_path / "vertices.parquet", columns=["paper", "field", "x7"])
    assert (np.array(graph.class_names)[graph.labels] == given["field"].to_numpy()).all()
    assert (graph.features[:, 7] == given["x7"].to_numpy()).all()
    within = graph.labels[graph.indices] == np.repeat(graph.labels, graph.in_degrees())
    assert within.mean() > 0.7, "edges join the vertices of the planted classes"
    training = ("--epochs", "2", "--quiet", "--eval-every", "0", "--memory", "450MiB", "--predict-out", "out.parquet")
    limited("train", "store", *training, "--run-dir", "run", folder=tmp_path)
    predicted = parquet.read_table(tmp_path / "out.parquet", columns=["id"])
    assert predicted["id"].to_pylist() == given["paper"].to_pylist()
