"""The limit that an ingest names is enough: in a control group of exactly that size it is not killed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from dorylus.graph import Graph

NUM_IDS = 5_000_000


def ingested(group: Path, edges: Path, store: Path, mib: int, *flags: str) -> subprocess.CompletedProcess[str]:
    """An ingest with a limit, in a group of that limit; pages of the input count."""
    (group / "memory.limit_in_bytes").write_text(str(max(mib, 128) << 20))
    with open(edges, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    command = [sys.executable, "-m", "dorylus.cli", "ingest", str(edges), str(store), "--memory", f"{mib}MiB", *flags]
    joined = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh", *command]
    return subprocess.run(joined, capture_output=True, text=True, timeout=120)


def test_many_ids_are_refused_with_a_limit_that_is_enough(group: Path, tmp_path: Path) -> None:
    """The first limit that is named has room for some ids; they are more, and the second has room for all."""
    edges, store = tmp_path / "pairs.i64", tmp_path / "store"
    ids = np.arange(NUM_IDS) * 1_000_003
    np.stack([ids, np.roll(ids, 1)], axis=1).tofile(edges)
    refused = ingested(group, edges, store, 1, "--ids", "map")
    assert refused.returncode == 2, refused.stderr
    ((first, room),) = re.findall(r"at least (\d+) MiB, which has room for ([\d,]+) different ids", refused.stderr)
    assert int(room.replace(",", "")) < NUM_IDS
    refused = ingested(group, edges, store, int(first), "--ids", "map")
    assert refused.returncode == 2, refused.stderr
    ((found, second),) = re.findall(r"about ([\d,]+) different ids, .* at least (\d+) MiB", refused.stderr)
    assert NUM_IDS <= int(found.replace(",", "")) < 1.05 * NUM_IDS
    done = ingested(group, edges, store, int(second), "--ids", "map")
    assert done.returncode == 0, done.stderr
    assert Graph.open(store).num_vertices == NUM_IDS
