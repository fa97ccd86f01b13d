"""What set-up installs: the lock with the hashes of its files, known vulnerabilities, and licences.

    python tools/supply_chain.py lock       requirements*.lock: packages and the hashes of their files (uv)
    python tools/supply_chain.py audit      packages of the locks with a known vulnerability (pip-audit)
    python tools/supply_chain.py licences   the licence of every package of the environment

``make lock``, ``make audit`` and ``make licences`` run these.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK, TORCH_LOCK, CUDA_LOCK = LOCKS = [ROOT / f"requirements{part}.lock" for part in ("", "-torch", "-cuda")]
TORCH = "torch==2.13.0"
BUILD = ("cmake", "nanobind", "ninja", "scikit-build-core")  # what compiles the kernels
AUDIT_S = 600.0
WHEELS = ROOT / "src" / "dorylus" / "functions" / "deploy" / "wheels.lock"
IN_FUNCTIONS = ("numpy", "onnxruntime", "pyzmq")
HEADS = {
    LOCK: "# What set-up installs, with the hashes of all files of each release. Regenerate with: make lock\n",
    # A lock of its own: pip prefers a file whose hash the index has, so it would ignore a CPU build on this disk.
    TORCH_LOCK: "# Torch: its builds for CUDA, and for CPUs where pip finds one. Regenerate with: make lock\n",
    CUDA_LOCK: "# What the CUDA build of torch needs besides. Regenerate with: make lock\n",
    WHEELS: "# The wheels that functions on another platform are packed with. Regenerate with: make lock\n",
}
_OF_CUDA = re.compile(r"(nvidia|cuda|triton)\b")
_START = re.compile(r"(?=^[A-Za-z0-9])", re.MULTILINE)
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


def main() -> int:
    """The exit code of the requested task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    locking = tasks.add_parser("lock")
    locking.add_argument("--upgrade", action="store_true", help="take the newest releases instead of those pinned")
    locking.add_argument("--torch", type=Path, nargs="*", default=[], help="other builds of torch that are accepted")
    tasks.add_parser("audit")
    tasks.add_parser("licences")
    options = parser.parse_args()
    if options.task == "lock":
        return lock(upgrade=options.upgrade, builds=options.torch)
    return audit() if options.task == "audit" else licences()


def lock(*, upgrade: bool, builds: list[Path]) -> int:
    """Write both locks; pins stay as they are without --upgrade."""
    pinned = "".join(path.read_text() for path in LOCKS)
    with tempfile.TemporaryDirectory() as folder:
        requirements, made = Path(folder, "requirements.in"), Path(folder, "made.lock")
        requirements.write_text("\n".join([TORCH, *BUILD]))
        made.write_text("" if upgrade else pinned)
        command = [
            *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"),
            *("--no-annotate", "--no-header", "--extra", "dev", "--output-file", str(made)),
            *(str(ROOT / "pyproject.toml"), str(requirements)),
        ]
        if subprocess.run(command).returncode:
            return 1
        entries = _entries(made.read_text())
    # A build of torch without CUDA comes from another place than the index: its hash stays, and new ones are added.
    more = {f"sha256:{hashlib.sha256(build.read_bytes()).hexdigest()}" for build in builds}
    before = _entries(pinned)
    if before.get("torch", "").startswith(f"{TORCH} "):
        more.update(_HASH.findall(before["torch"]))
    hashes = sorted({*_HASH.findall(entries["torch"]), *more})
    entries["torch"] = f"{TORCH} \\\n" + " \\\n".join(f"    --hash={each}" for each in hashes) + "\n"
    for path in LOCKS:
        path.write_text(HEADS[path] + "".join(entry for name, entry in entries.items() if _lock_of(name) == path))
    WHEELS.write_text(HEADS[WHEELS] + "".join(entries[name] for name in IN_FUNCTIONS))
    print(f"{len(entries)} packages in {', '.join(path.name for path in LOCKS)}")
    return 0


def audit() -> int:
    """Print known vulnerabilities; 1 if there are any, 2 if a package could not be looked up."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--format", "json", "--disable-pip"]
    try:
        done = subprocess.run(
            [*command, *(part for path in LOCKS for part in ("--requirement", str(path)))],
            capture_output=True,
            text=True,
            timeout=AUDIT_S,
        )
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, subprocess.TimeoutExpired) as error:
        output = " ".join((done.stderr if "done" in locals() else str(error)).split())[-300:]
        return _not_audited(f"pip-audit gave no answer ({output})")
    skipped = [each["name"] for each in found if "skip_reason" in each]
    if skipped or not found:
        return _not_audited(f"the advisory service has no answer for {len(skipped)} of {len(found)} packages")
    bad = [(each["name"], each["version"], advice["id"]) for each in found for advice in each["vulns"]]
    for name, version, advice in bad:
        print(f"{name} {version}: {advice}")
    print(f"{len(found)} packages, {len(bad)} known vulnerabilities")
    return 1 if bad else 0


def licences() -> int:
    """Print the packages by licence; 1 if one names none."""
    packages: dict[str, list[str]] = defaultdict(list)
    for found in metadata.distributions():
        packages[_licence(found)].append(f"{found.name} {found.version}")
    for licence, names in sorted(packages.items()):
        print(f"{licence}: {', '.join(sorted(set(names), key=str.lower))}")
    return 1 if "unknown" in packages else 0


def _not_audited(why: str) -> int:
    print(f"Not audited: {why}. Run it where the service can be reached.", file=sys.stderr)
    return 2


def _lock_of(name: str) -> Path:
    return TORCH_LOCK if name == "torch" else CUDA_LOCK if _OF_CUDA.match(name) else LOCK


def _entries(text: str) -> dict[str, str]:
    """Each requirement with its hashes, by name."""
    parts = [part for part in _START.split(text) if re.match(r"[A-Za-z0-9]", part)]
    return {re.split(r"[^\w.-]", part)[0].lower().replace("_", "-"): part for part in parts}


def _licence(found: metadata.Distribution) -> str:
    fields = found.metadata
    classified = [each.rpartition(" :: ")[2] for each in fields.get_all("Classifier") or [] if "License ::" in each]
    named = fields.get("License-Expression") or ", ".join(classified) or (fields.get("License") or "").split("\n")[0]
    return named.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
