"""Tables of a planted graph: most edges join vertices of one class, and features predict a little of it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

NUM_CLASSES, NUM_NUMBERS = 4, 19
BLOCK = 1 << 16


def names_of(vertices):
    """The ids of vertices, texts that are in no order."""
    return pa.array([f"paper/{number}" for number in (vertices * 7919 % (10**9 + 7)).tolist()])


def class_name(number):
    """The name of a class, in another order than the numbers."""
    return f"field {chr(ord('z') - number)}"


def write_planted_tables(folder: Path, num_vertices: int, num_edges: int, seed: int = 0) -> dict[str, str]:
    """Write edges.csv and vertices.parquet; returns the planted class of every id, if they are few."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, NUM_CLASSES, num_vertices)
    by_class = np.argsort(classes, kind="stable")
    begins = np.searchsorted(classes[by_class], np.arange(NUM_CLASSES + 1))
    schema = pa.schema([("citing", pa.string()), ("cited", pa.string())])
    with csv.CSVWriter(folder / "edges.csv", schema) as writer:
        for begin in range(0, num_edges, BLOCK):
            count = min(BLOCK, num_edges - begin)
            source = random.integers(0, num_vertices, count)
            other = random.integers(0, NUM_CLASSES, count)
            chosen = np.where(random.random(count) < 0.7, classes[source], other)
            offsets = random.random(count) * (begins[chosen + 1] - begins[chosen])
            target = by_class[begins[chosen] + offsets.astype(np.int64)]
            writer.write_table(pa.table([names_of(source), names_of(target)], schema=schema))
    _write_vertices(folder, classes, random)
    if num_vertices > BLOCK:
        return {}
    return dict(zip(names_of(np.arange(num_vertices)).to_pylist(), map(class_name, classes), strict=True))


def _write_vertices(folder, classes, random):
    numbers = [(f"x{column}", pa.float32()) for column in range(NUM_NUMBERS)]
    texts = [(name, pa.string()) for name in ("venue", "field")]
    schema = pa.schema([("paper", pa.string()), *numbers, *texts])
    order = random.permutation(classes.size)
    with parquet.ParquetWriter(folder / "vertices.parquet", schema) as writer:
        for begin in range(0, classes.size, BLOCK):
            vertices = order[begin : begin + BLOCK]
            classes_here, count = classes[vertices], vertices.size
            values = random.standard_normal((count, NUM_NUMBERS)).astype(np.float32)
            values[np.arange(count), classes_here] += 1
            venues = np.where(random.random(count) < 0.3, classes_here, random.integers(0, NUM_CLASSES, count))
            columns = [
                pa.array([f"venue {number}" for number in venues]),
                pa.array(list(map(class_name, classes_here))),
            ]
            writer.write_table(pa.table([names_of(vertices), *values.T.copy(), *columns], schema=schema))
