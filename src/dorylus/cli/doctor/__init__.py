"""``dorylus doctor``: whether this machine, or a cluster, is fit to train.

Each check reports what it found, and the cure where something is wrong. Those of this machine are here; those of a Ray
cluster are in ``doctor/cluster.py``. bfloat16 products are tried in a child process: torch crashes on some processors.
"""

import importlib.util
import math
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

from dorylus import units
from dorylus.errors import ConfigError, TrainingError, unknown_name
from dorylus.extras import CORE, EXTRAS, broken_package
from dorylus.pools import POOLS
from dorylus.settings import SettingGroup

CLUSTERS = ("local", "ray")
STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    cluster: Annotated[
        str,
        typer.Option(
            help="local: this machine; ray: all nodes of a Ray cluster.",
            metavar="NAME",
            rich_help_panel=SettingGroup.PLACE,
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="ray: the address of the cluster. [this machine's]",
            metavar="HOST:PORT",
            rich_help_panel=SettingGroup.PLACE,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            help="ray: cores a graph server is given. [this machine's]",
            min=1,
            metavar="N",
            rich_help_panel=SettingGroup.PLACE,
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="ray: a graph's store that all nodes must read.", metavar="FOLDER", rich_help_panel=SettingGroup.PLACE
        ),
    ] = None,
) -> None:
    """Check the installation and the machine, or a cluster; exit code 1 when something is broken."""
    if cluster not in CLUSTERS:
        raise ConfigError(unknown_name("cluster", cluster, CLUSTERS))
    if cluster == "ray":
        raise typer.Exit(show(ray_checks(address, threads, store)))
    for name, value in {"address": address, "threads": threads, "store": store}.items():
        if value is not None:
            raise ConfigError(f"--{name} is about a cluster: add --cluster ray.")
    raise typer.Exit(report(CHECKS))


def ray_checks(address: str | None, threads: int | None, store: str | None) -> "list[Check]":
    """The checks of a Ray cluster; takes as long as its nodes need to answer, up to a time-out."""
    from dorylus.cli.doctor.cluster import checks_of, collect
    from dorylus.graph import full_address

    if importlib.util.find_spec("ray") is None:
        return [Check("ray", "fail", "not installed", 'pip install "dorylus[ray]", here and on every node')]
    return checks_of(collect(address or "", full_address(store) if store else ""), threads)


def report(checks: Sequence[Callable[[], "Check"]]) -> int:
    """Runs the checks and prints a line for each as it ends; returns the exit code."""
    return show(_until_broken(checks))


def _until_broken(checks: Sequence[Callable[[], "Check"]]) -> Iterator["Check"]:
    """The outcome of each check; none after that of the packages, where one does not load: the others need it."""
    for each in checks:
        done = carried_out(each)
        yield done
        if done.name == "packages" and done.status == "fail":
            return


def show(checks: Iterable["Check"]) -> int:
    """Prints a line for each; the exit code."""
    failed = 0
    for done in checks:
        failed += done.status == "fail"
        typer.secho(f"{done.status:4}", fg=STYLES[done.status], bold=done.status == "fail", nl=False)
        typer.echo(f"  {done.name:10} {done.found}" + (f" – {done.cure}" if done.cure else ""))
    typer.secho(f"{failed} failed" if failed else "fit to train", fg=STYLES["fail" if failed else "ok"])
    return 1 if failed else 0


PROGRAM = (
    "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); raise SystemExit(0 if (a @ a).max() == 64 else 3)"
)
SAFER = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
DEADLINE_S = 120.0

Run = Callable[[Mapping[str, str]], int | None]


def try_bf16(run: Run | None = None) -> tuple[str, str]:
    """("ok" or "warn", what was found): as it is, then with oneDNN kept from the newest instructions."""
    attempt = run or run_child
    first = attempt({})
    if first == 0:
        return "ok", "works"
    if attempt(SAFER) == 0:
        name, value = next(iter(SAFER.items()))
        return "warn", f"{_end(first)}, works with {name}={value}"
    return "warn", _end(first)


def run_child(extra: Mapping[str, str]) -> int | None:
    """The child's exit code, negative for a signal; None when it did not end in time."""
    environment = {**os.environ, **extra}
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, timeout=DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def _end(code: int | None) -> str:
    if code is None:
        return f"does not end within {DEADLINE_S:g} s"
    if code < 0:
        return f"dies of {signal.Signals(-code).name}"
    return "gives a wrong product" if code == 3 else f"fails with exit code {code}"


LOW_MEMORY_BYTES = 2**30
TOLERANCE = 1e-5
MODELS = ("gcn", "gat", "sage", "gin")
PURPOSES = {
    "parquet": "Parquet and Arrow files",
    "tables": "the same files",
    "pyg": "models and graphs of PyG",
    "networkx": "graphs of NetworkX",
    "ogb": "OGB's data sets",
    "metis": "partition=metis",
    "http": "functions behind HTTP, their server",
    "ray": "cluster=ray",
    "tensorboard": "log_to=tensorboard",
    "mlflow": "log_to=mlflow",
    "wandb": "log_to=wandb",
}
for _pool in POOLS.values():
    if _pool.extra is not None:
        PURPOSES[_pool.extra] = " and ".join(filter(None, (PURPOSES.get(_pool.extra), f"pool={_pool.name}")))


@dataclass(frozen=True)
class Check:
    """One line of the report; ``status`` is ok, warn or fail."""

    name: str
    status: str
    found: str
    cure: str = ""


def check_python() -> Check:
    """The interpreter and the system it runs on."""
    return Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def check_packages() -> Check:
    """Whether every package that an install needs loads, and the compiled kernels."""
    broken = broken_package()
    if broken is not None:
        return Check("packages", "fail", *broken)
    return Check("packages", "ok", f"{', '.join(CORE)} and the compiled kernels load")


def check_torch() -> Check:
    """The PyTorch that dense tasks run in."""
    import torch

    maths = "with MKL" if torch.backends.mkl.is_available() else "without MKL"  # type: ignore[no-untyped-call]
    return Check("torch", "ok", f"{torch.__version__} {maths}")


def check_cores() -> Check:
    """The cores this process may use."""
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    limited = f" of {present}, the others are not for this process" if usable < present else ""
    return Check("cores", "ok", f"{usable}{limited}")


def check_memory(meminfo: str | None = None) -> Check:
    """The memory of the machine, and what is left of it."""
    text = Path("/proc/meminfo").read_text() if meminfo is None else meminfo
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines() if line.endswith("kB")}
    total, free = sizes["MemTotal"], sizes["MemAvailable"]
    found = f"{units.size(total)}, {units.size(free)} available"
    if free < LOW_MEMORY_BYTES:
        return Check("memory", "warn", found, "end other programs before training on anything but a small graph")
    return Check("memory", "ok", found)


def check_native() -> Check:
    """The instructions that the compiled kernels use on this processor."""
    from dorylus.backends import native

    if native.isa() == "baseline":
        return Check(
            "native", "warn", "load, without vector instructions", "training works, slowly; use a newer processor"
        )
    return Check("native", "ok", f"load, and use {native.isa()}")


def check_agreement(kernels: Any = None) -> Check:
    """The compiled kernels against their definition in NumPy, on a tiny graph."""
    from dorylus.backends import native, reference

    pairs = zip(_tiny(kernels or native), _tiny(reference), strict=True)
    worst = float(np.max([np.abs(ours - theirs).max() for ours, theirs in pairs]))
    if not worst <= TOLERANCE:
        cure = "do not train with this build: build the package again on this machine, and tell us"
        return Check("agreement", "fail", f"kernels differ from their definition by {worst:.2g}", cure)
    return Check("agreement", "ok", f"kernels give what their definition gives, to {worst:.1g}")


def check_bf16(run: Any = None) -> Check:
    """Whether bfloat16 products can be computed."""
    status, found = try_bf16(run)
    if status == "ok":
        return Check("bf16", "ok", found)
    name, value = next(iter(SAFER.items()))
    again = f"set {name}={value} before torch is loaded for bfloat16 modules of your own; " if name in found else ""
    return Check("bf16", "warn", found, again + "precision='float32' is not touched by it")


def check_training() -> Check:
    """Whether one machine's work gets through on a tiny graph: ingest, every model, a resumed run, predictions."""
    start_s = time.perf_counter()
    with TemporaryDirectory(prefix="dorylus-doctor-") as folder:
        losses = _tiny_runs(Path(folder))
    bad = [f"{name} (loss {loss})" for name, loss in losses.items() if not math.isfinite(loss)]
    if bad:
        return Check("training", "fail", f"not finite after an epoch: {', '.join(bad)}", "do not train with this build")
    spent_s = time.perf_counter() - start_s
    return Check("training", "ok", f"ingest, {', '.join(MODELS)}, resume and predict: {spent_s:.1f} s on a tiny graph")


def _tiny_runs(folder: Path) -> dict[str, float]:
    """The last loss of each run on a tiny ingested graph: every model on two servers, and a run that was resumed."""
    import dorylus

    made = dorylus.communities(num_vertices=100, num_classes=3, average_degree=4)
    rows = {"features": made.features, "labels": made.labels, "train": made.train_mask, "num_vertices": 100}
    graph = dorylus.Graph.ingest(np.stack(made.edge_list()), folder / "store", **rows)
    losses = {}
    for name in MODELS:
        model = getattr(dorylus, name)(hidden=4)
        losses[name] = dorylus.train(graph, model, epochs=1, servers=2, intervals=2, progress=False).losses[-1]
    with dorylus.Trainer(graph, dorylus.gcn(), epochs=2, checkpoint_every=1, run_dir=folder / "run") as stopped:
        stopped.run(1)
    resumed = dorylus.resume(folder / "run", graph, dorylus.gcn(), progress=False)
    scores = resumed.predict(out=folder / "scores.npy")
    if (len(resumed.losses), np.load(folder / "scores.npy").shape) != (2, (100, 3)):
        raise TrainingError(f"a resumed run has {len(resumed.losses)} epochs of 2, and predicts {scores}")
    return losses | {"resumed": resumed.losses[-1]}


def check_optional() -> Check:
    """The packages that some pools, commands and converters need, and the use of each missing one."""
    there = [extra for extra, packages in EXTRAS.items() if all(map(importlib.util.find_spec, packages))]
    absent = [extra for extra in EXTRAS if extra not in there]
    found = ", ".join(there) or "none"
    if not absent:
        return Check("extras", "ok", found)
    missing = ", ".join(f"{extra} (for {PURPOSES[extra]})" for extra in absent)
    return Check("extras", "ok", f"{found}; missing: {missing}", f'pip install "dorylus[{",".join(absent)}]"')


CHECKS: tuple[Callable[[], Check], ...] = (
    check_python,
    check_cores,
    check_memory,
    check_packages,
    check_torch,
    check_native,
    check_agreement,
    check_training,
    check_bf16,
    check_optional,
)


def carried_out(check: Callable[[], Check]) -> Check:
    """The check's outcome; a check that breaks off is a failure of its own."""
    try:
        return check()
    except Exception as error:
        name = check.__name__.removeprefix("check_")
        return Check(name, "fail", f"{type(error).__name__}: {error}", "reinstall the package, and tell us")


def _tiny(native: Any) -> list[np.ndarray[Any, Any]]:
    """Results of the main kernels on a graph of five vertices, one of them alone; width 19 fills no vector."""
    rng = np.random.default_rng(0)
    indptr, indices = np.array([0, 2, 5, 5, 6, 8], np.int64), np.array([1, 4, 0, 2, 3, 1, 0, 4], np.int32)
    x, ids = rng.standard_normal((5, 19), dtype=np.float32), np.arange(5, dtype=np.int32)
    summed, dropped, attended = np.zeros_like(x), np.zeros_like(x), np.zeros((5, 18), np.float32)
    native.spmm(indptr, indices, x, summed, 0, 5, mean=True)
    native.dropout(x, dropped, ids, 0, 5, drop=_dropout())
    scores = rng.standard_normal((2, 5, 2), dtype=np.float32)
    z = np.ascontiguousarray(x[:, :18])
    native.attention(indptr, indices, z, scores[0], scores[1], attended, 0, 5, heads=2)
    return [summed, dropped, attended]


def _dropout() -> Any:
    from dorylus.backends import Dropout

    return Dropout(p=0.5, seed=1, epoch=2, layer=0)
