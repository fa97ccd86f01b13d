"""Ingests on small disks that really fill up: one sentence, nothing left; and the predicted space is enough."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")

# For each size: mounts a disk of that size at a place and ingests to it. Prints the results.
SMALL_DISK = """
import json, os, subprocess, sys
from pathlib import Path
import numpy as np
import dorylus.ingest.budget as budget
from dorylus.errors import DataError
import dorylus.graph.array_writer as array_writer
import dorylus.ingest.pipeline as pipeline
from dorylus.ingest import ingest_edges
PAGES = 160 << 10  # files take whole pages
# Buffers are as small, relative to the store, as those of large stores.
array_writer.BUFFER_BYTES, pipeline.BLOCK_EDGES = 1 << 16, 1 << 12
disk, options = Path(sys.argv[1]), json.loads(sys.argv[2])
if options.pop("little_memory", False):
    budget.shares_of = lambda *_, **__: budget.IngestShares(spool=450_000, merge=700_000, transpose=450_000)
check_space, predicted = budget.check_space, []
edges, sizes = options.pop("edges", None), options.pop("sizes")
alone, weighted = options.pop("alone", 0), options.pop("weighted", False)
if edges is None:
    edges = tuple((np.random.default_rng(0).random((2, 300_000)) ** 2 * 50_000).astype(np.int64) + alone)
    edges += (np.ones(300_000, np.float32),) if weighted else ()
def on(size, check):
    budget.check_space = check_space if check else lambda folder, space, already=0: predicted.append(space.most)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)], check=True)
    progress, sentence = [], None
    try:
        ingest_edges(edges, disk / "store", tell=progress.append, **options)
    except DataError as error:
        sentence = str(error)
    free = os.statvfs(disk)
    done = {"sentence": sentence, "stages": sorted({each.stage for each in progress}), "left": os.listdir(disk),
            "free": free.f_bavail / free.f_blocks}
    subprocess.run(["umount", str(disk)], check=True)
    return done
if sizes == "as predicted":
    on(1 << 28, False)
    most = predicted[0]
    ways = {"enough": (1, True), "a tenth less": (0.9, True), "filling": (0.8, False)}
    print(json.dumps({name: on(int(part * most) + PAGES, check) for name, (part, check) in ways.items()}))
else:
    print(json.dumps({str(size): on(size, False) for size in sizes}))
"""


def on_small_disks(tmp_path: Path, **options: Any) -> dict[str, dict[str, Any]]:
    """The results of an ingest on disks of several sizes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["unshare", "--mount", sys.executable, "-c", SMALL_DISK, str(disk), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def rows(folder: Path) -> dict[str, str]:
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.random((50_000, 8), dtype=np.float32))
    np.save(folder / "y.npy", rng.integers(0, 3, 50_000))
    return {"features": str(folder / "x.npy"), "labels": str(folder / "y.npy")}


def names(folder: Path) -> dict[str, Any]:
    path = folder / "names.tsv"
    pairs = (np.random.default_rng(0).random((60_000, 2)) ** 2 * 30_000).astype(int)
    path.write_text("".join(f"a-name-{source}\ta-name-{destination}\n" for source, destination in pairs))
    return {"edges": [str(path)]}


def assert_refused_and_nothing_left(found: dict[str, Any]) -> None:
    assert "No space left on device. Check the free space" in found["sentence"]
    assert (found["left"], found["free"]) == ([], 1.0)


@pytest.mark.parametrize(("reorder", "stage"), [("none", "copying features"), ("degree", "counting degrees")])
def test_a_disk_that_fills_up_is_one_sentence_and_gets_its_space_back(reorder: str, stage: str, tmp_path: Path) -> None:
    """It fills up in spite of the check, as if other programs wrote to it meanwhile."""
    sizes = [100_000 + 500_000 * step for step in range(10)]
    found = on_small_disks(tmp_path, sizes=sizes, undirected=False, reorder=reorder, **rows(tmp_path))
    for each in found.values():
        assert_refused_and_nothing_left(each)
    stages = {stage for each in found.values() for stage in each["stages"]}
    assert {"reading edges", stage} <= stages


def test_names_that_fill_the_disk_give_the_same_sentence(tmp_path: Path) -> None:
    options = names(tmp_path)
    (tmp_path / "vertices.txt").write_text("".join(f"a-name-{vertex}\n" for vertex in range(30_000)))
    found = on_small_disks(tmp_path, sizes=[50_000, 600_000, 1_200_000], **options)
    listed_folder = tmp_path / "listed"
    listed_folder.mkdir()
    listed = on_small_disks(
        listed_folder, sizes=[50_000, 300_000], vertices=str(tmp_path / "vertices.txt"), ids="strings", **options
    )
    for each in [*found.values(), *listed.values()]:
        assert_refused_and_nothing_left(each)


CASES: dict[str, dict[str, Any]] = {
    "directed, of many runs": {"undirected": False, "num_vertices": 50_000, "little_memory": True},
    "undirected, of many runs": {"num_vertices": 50_000, "little_memory": True},
    "directed, weighted": {"undirected": False, "num_vertices": 50_000, "little_memory": True, "weighted": True},
    "undirected, weighted": {"num_vertices": 50_000, "little_memory": True, "weighted": True},
    "with much memory": {"num_vertices": 50_000},
    "directed, with much memory": {"num_vertices": 50_000, "undirected": False},
    "the first vertices have no edges": {"num_vertices": 350_000, "alone": 300_000, "little_memory": True},
    "nor do they point anywhere": {
        "num_vertices": 350_000,
        "alone": 300_000,
        "little_memory": True,
        "undirected": False,
    },
    "reordered": {"reorder": "degree", "rows": True, "little_memory": True},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_the_required_space_is_enough_and_needed(options: dict[str, Any], tmp_path: Path) -> None:
    options = {**options, **(rows(tmp_path) if options.get("rows") else {})}
    options.pop("rows", None)
    found = on_small_disks(tmp_path, sizes="as predicted", **options)
    assert found["enough"]["sentence"] is None
    assert "of space for the store" in found["a tenth less"]["sentence"]
    assert found["a tenth less"]["stages"] == [], "refused before any work"
    assert_refused_and_nothing_left(found["filling"])
