"""Stores in the lower layer of an overlay, as in an image of Docker: a folder there cannot be renamed (EXDEV)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dorylus.graph import Graph

# Replaces the store of a fresh overlay, in a process that is killed before its n-th change; prints what is left.
REPLACED = """
import json, os, shutil, signal, subprocess, sys
from pathlib import Path
from dorylus.errors import DataError
from dorylus.graph import Graph
root = Path(sys.argv[1])
place = root / "merged" / "data" / "store"
CHANGES = {"os.rename", "os.remove", "os.rmdir"}

def replace(last):
    steps = 0
    def step(event, arguments):
        nonlocal steps
        if event in CHANGES and "store" in str(arguments[0]):
            steps += 1
            if steps == last:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(step)
    Graph.ingest(([0, 1], [1, 2]), place, name="new", overwrite=True)
    os._exit(min(steps, 100))

def name():
    try:
        return Graph.open(place, verify=True).name
    except DataError as error:
        return str(error)

def once(last):
    for each in ("upper", "work", "merged"):
        shutil.rmtree(root / each, ignore_errors=True)
        (root / each).mkdir()
    layers = f"lowerdir={root}/lower,upperdir={root}/upper,workdir={root}/work"
    if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(root / "merged")]).returncode:
        sys.exit(77)
    child = os.fork()
    if not child:
        replace(last)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = {"status": status, "name": name()}
    Graph.ingest(([0, 1], [1, 2]), place, name="again", overwrite=True)
    found["after"], found["left"] = name(), sorted(os.listdir(place.parent))
    subprocess.run(["umount", str(root / "merged")], check=True)
    return found

whole = once(0)
print(json.dumps([whole, *(once(last) for last in range(1, whole["status"] + 1))]))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The stores after replacements: by a process that finished, and by others that were killed before each change."""
    if os.geteuid() != 0:
        pytest.skip("mounting an overlay takes root")
    root = tmp_path_factory.mktemp("overlay")
    (root / "lower" / "data").mkdir(parents=True)
    Graph.from_edges([0], [1], name="old").save(root / "lower" / "data" / "store")
    command = ["unshare", "--mount", sys.executable, "-c", REPLACED, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == 77:
        pytest.skip(f"an overlay cannot be mounted here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def test_a_store_of_a_lower_layer_is_replaced(found: list[dict[str, Any]]) -> None:
    num_changes = found[0]["status"]
    assert found[0] == {"status": num_changes, "name": "new", "after": "again", "left": ["store"]}
    assert len(found) == 1 + num_changes > 5


def test_a_kill_before_any_change_leaves_the_old_store_the_new_one_or_the_way_to_it(
    found: list[dict[str, Any]],
) -> None:
    killed = found[1:]
    assert {each["status"] for each in killed} == {-9}
    assert {(each["after"], *each["left"]) for each in killed} == {("again", "store")}, "whatever was left is tidied"
    names = ["way" if "was being replaced when" in each["name"] else each["name"] for each in killed]
    assert [name for name, after in zip(names, [*names[1:], ""], strict=True) if name != after] == ["old", "way"]


def test_a_store_that_is_a_mount_point_is_refused_before_any_work(tmp_path: Path) -> None:
    """As with a mounted volume: no other folder can take its place."""
    if os.geteuid() != 0:
        pytest.skip("mounting a folder takes root")
    store = tmp_path / "a store"
    Graph.from_edges([0], [1], name="old").save(store)
    (tmp_path / "edges.txt").write_text("0 1\n")
    ingest = f"{sys.executable} -m dorylus.cli ingest {tmp_path}/edges.txt '{store}' --overwrite"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"mount --bind '{store}' '{store}' || exit 77; {ingest}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 77:
        pytest.skip(f"a folder cannot be mounted here: {done.stderr}")
    assert done.returncode == 2
    assert "is a mount point, and no new folder can take its place: choose a folder in it" in done.stderr
    assert Graph.open(store).name == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a store", "edges.txt"]
