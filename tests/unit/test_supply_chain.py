"""The locks name every package with its hashes, and an audit without an answer is a failure."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "supply_chain.py"


@pytest.fixture(scope="module")
def tool():
    """The tool, as a module."""
    spec = importlib.util.spec_from_file_location("supply_chain", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_package_of_the_locks_is_pinned_and_has_hashes(tool):
    for path in tool.LOCKS:
        entries = tool._entries(path.read_text())
        assert entries
        for name, entry in entries.items():
            assert re.match(rf"{re.escape(name)}==\S+", entry), entry
            assert tool._HASH.search(entry), f"{name} has no hash"


def test_packages_lie_in_the_lock_that_set_up_installs_them_from(tool):
    for path in tool.LOCKS:
        assert {tool._lock_of(name) for name in tool._entries(path.read_text())} == {path}


def test_set_up_installs_by_hash_alone():
    makefile = (ROOT / "Makefile").read_text()
    installs = [line for line in makefile.splitlines() if re.search(r"-r requirements[-\w]*\.lock", line)]
    assert len(installs) == 3
    assert all("$(PIP) $(LOCKED)" in line for line in installs)
    assert "LOCKED := install --require-hashes --no-deps --only-binary :all:" in makefile


def audited(tmp_path, output, code=0):
    """Exit code and output of an audit whose pip-audit writes this."""
    (tmp_path / "pip_audit.py").write_text(f"import sys\nprint({output!r})\nsys.exit({code})\n")
    done = subprocess.run(
        [sys.executable, TOOL, "audit"], capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("output", "code", "message"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], 0, "1 packages, 0 known vulnerabilities"),
        ([{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}], 1, "a 1: CVE-1"),
        ([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}], 2, "1 of 2 packages"),
        ([], 2, "Not audited: the advisory service has no answer for 0 of 0 packages"),
    ],
)
def test_an_audit_passes_only_if_every_package_was_looked_up(tmp_path, output, code, message):
    found, text = audited(tmp_path, json.dumps({"dependencies": output}))
    assert (found, message in text) == (code, True), text


def test_an_audit_without_an_answer_fails_in_one_sentence(tmp_path):
    found, text = audited(tmp_path, "Connection refused", code=1)
    assert found == 2
    assert text.startswith("Not audited: pip-audit gave no answer")
    assert len(text.splitlines()) == 1
