"""The edge lists that the benchmark of ingest writes are the same graph in every format."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from dorylus.graph import Graph
from dorylus.ingest.readers.files import open_edges

ROOT = Path(__file__).parents[2]
WRITE = """
import sys
from pathlib import Path
from benchmarks import edge_files
edge_files.BLOCK = 300
for name, suffix in edge_files.SUFFIXES.items():
    edge_files.write_edges(Path(sys.argv[1]) / f"{name}{suffix}", 500, 1000, 0, name)
"""


def test_every_format_holds_the_same_edges(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WRITE, str(tmp_path)], cwd=ROOT, check=True, timeout=120)
    graphs = {}
    for path in sorted(tmp_path.iterdir()):
        source = open_edges(path)
        assert source.strings == (path.stem == "names")
        graphs[path.stem] = Graph.ingest(path, tmp_path / f"{path.stem}-store", undirected=False)
    assert sorted(graphs) == ["names", "parquet", "raw", "text"]
    for name in ("parquet", "text"):
        assert np.array_equal(graphs[name].indices, graphs["raw"].indices)
    assert graphs["names"].num_edges == graphs["raw"].num_edges > 900
    assert sum(len(batch.source) for batch in open_edges(tmp_path / "names.tsv")) == 1000
