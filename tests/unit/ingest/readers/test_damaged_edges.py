"""Files that carry checksums: a flipped bit or a lost end is refused or has no effect; it never changes edges."""

import bz2
import gzip
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from all_edges import edges_of
from pyarrow import parquet

from dorylus.errors import DataError
from dorylus.ingest.readers.files import open_edges

ENDS = np.random.default_rng(0).integers(0, 1000, (2, 2000))
TEXT = "".join(f"{source} {destination}\n" for source, destination in ENDS.T).encode()


def write_parquet(path: Path, **options: object) -> None:
    parquet.write_table(pa.table({"source": ENDS[0], "target": ENDS[1]}), path, write_page_checksum=True, **options)


WRITERS: dict[str, Callable[[Path], object]] = {
    "edges.txt.gz": lambda path: path.write_bytes(gzip.compress(TEXT)),
    "edges.txt.bz2": lambda path: path.write_bytes(bz2.compress(TEXT)),
    "edges.npz": lambda path: np.savez(path, source=ENDS[0], destination=ENDS[1]),
    "packed.npz": lambda path: np.savez_compressed(path, edge_index=ENDS),
    "dictionary.parquet": write_parquet,
    "plain.parquet": lambda path: write_parquet(path, use_dictionary=False, compression="none"),
    "pages.parquet": lambda path: write_parquet(path, data_page_version="2.0", data_page_size=1000),
}


@pytest.mark.parametrize("name", WRITERS)
def test_damage_is_refused_or_has_no_effect(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    whole, expected = path.read_bytes(), edges_of(open_edges(path))
    assert expected == list(map(tuple, ENDS.T.tolist()))
    chance, refused = random.Random(name), 0
    for case in range(40):
        content = bytearray(whole)
        if case % 4:
            content[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        else:
            del content[chance.randrange(len(whole)) :]
        path.write_bytes(content)
        try:
            found = edges_of(open_edges(path))
        except DataError:
            refused += 1
        else:
            assert found == expected, f"case {case}"
    assert refused > 30
