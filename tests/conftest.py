"""Every test leaves the process as it found it: threads, environment, signal handlers, working folder.

Also what several folders of tests need: an embedded cluster, assembled as the trainer does it.
"""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import hypothesis
import pytest

# Examples have no time limit: the machine may be busy.
hypothesis.settings.register_profile("dorylus", deadline=None, max_examples=20)
hypothesis.settings.register_profile("soak", deadline=None, max_examples=400)
hypothesis.settings.load_profile("dorylus")

# The longest first: workers that end with short files end at about the same time.
_LONG = (
    "integration/test_ray_nodes.py",
    "numerics/test_exported_programs.py",
    "numerics/test_saved_activations.py",
    "integration/test_sabotaged_functions.py",
    "integration/test_lambda_local.py",
    "integration/test_processes_pool.py",
)

_NOT_OURS = {".hypothesis", ".pytest_cache", "__pycache__"}
_NOT_OUR_VARIABLES = {"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"}


def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors, but not those that PyG draws from torch, and from Python 3.13, when it is imported."""
    for message in (
        "`torch.jit.script",
        "Failing to pass a value to the 'type_params' parameter of 'typing._eval_type'",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}:DeprecationWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first, all others as they were."""
    rank = {name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: rank.get("/".join(item.path.parts[-2:]), len(rank)))


def engine_threads() -> list[str]:
    """The names of the engine's threads that are alive."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("dorylus-"))


def environment() -> dict[str, str]:
    """The environment, less what pytest and torch themselves write there."""
    return {name: value for name, value in os.environ.items() if name not in _NOT_OUR_VARIABLES}


@pytest.fixture(scope="session", autouse=True)
def caches_are_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Exported programs and packages are cached for the tests of this session, and not in the user's folder."""
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root  # one for all workers: exports take seconds
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
        yield


@pytest.fixture
def nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every run with a memory limit keep as much as possible in files."""
    from dorylus import process_memory
    from dorylus.memory import limit as limits
    from dorylus.memory.layout import Figures

    monkeypatch.setattr(process_memory, "private_bytes", lambda: 0)  # without the memory of earlier tests
    monkeypatch.setattr(limits, "in_memory", lambda *_, **__: Figures(Counter({"everything": 1 << 60})))
    monkeypatch.setattr(limits, "SPILL_POLICIES", limits.SPILL_POLICIES[-1:])
    monkeypatch.setattr(limits, "FEWEST_ROWS", 50)


@pytest.fixture(scope="session", autouse=True)
def plans_count_a_process_of_their_own() -> Iterator[None]:
    """Makes plans assume a process as large as a user's: that of the tests holds memory of earlier tests."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (
            "ingest.pipeline",
            "ingest.entry_point",
            "ingest.budget",
            "partition.limit",
            "partition.shard_store",
        ):
            patch.setattr(f"dorylus.{module}.resident_bytes", lambda: 120 << 20)
        yield


@pytest.fixture(scope="session", autouse=True)
def workers_share_the_cores() -> None:
    """Each of several workers computes on one thread of torch's: more threads would spin, waiting for each other."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        import torch

        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def torch_lists_its_operations_once() -> None:
    """Makes torch keep its table of exportable operators, which it builds for every program in half a second."""
    module = sys.modules.get("torch.onnx._internal.exporter._registration")  # once something was exported here
    registry = getattr(module, "ONNXRegistry", None)
    if registry is not None and "from_torchlib" in vars(registry) and not hasattr(registry, "kept_by_tests"):
        registry.kept_by_tests = True
        registry.from_torchlib = staticmethod(cache(registry.from_torchlib))


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    """Fails a test after which one of the engine's threads is still alive."""
    before = engine_threads()
    yield
    left = [name for name in engine_threads() if name not in before]
    assert not left, f"the test left threads behind: {left}. Close the trainer, cluster or engine it made."


@pytest.fixture(autouse=True)
def environment_is_left_alone() -> Iterator[None]:
    """Fails a test that changes the environment, the working folder or what Ctrl-C does."""
    before, folder, handler = environment(), os.getcwd(), signal.getsignal(signal.SIGINT)
    yield
    after = environment()
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    assert not changed, f"the test changed the environment: {changed}. Use monkeypatch.setenv."
    assert os.getcwd() == folder, "the test changed the working folder. Use monkeypatch.chdir."
    assert signal.getsignal(signal.SIGINT) is handler, "the test left another handler for Ctrl-C behind."


@pytest.fixture(autouse=True)
def no_file_is_left_in_the_working_folder() -> Iterator[None]:
    """Fails a test that writes into the folder the tests are run from."""
    folder = os.getcwd()
    before = set(os.listdir(folder))
    yield
    new = sorted(set(os.listdir(folder)) - before - _NOT_OURS)
    assert not new, f"the test left {new} in {folder}. Write under tmp_path."


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Any]]:
    """Makes clusters ready to train, and closes them: (graph, model, pool=..., lr=..., kind=..., settings).

    ``kind(job, pool)`` makes another cluster than the embedded one.
    """
    import torch

    from dorylus.backends import NativeBackend
    from dorylus.config import RunConfig
    from dorylus.pools import ThreadsPool
    from dorylus.runtime import LocalRuntime
    from dorylus.training.assembly import assemble, bind
    from dorylus.training.placement import training_job

    made = []

    def make(
        graph: Any, model: Any, *, pool: Any = None, lr: float = 0.05, kind: Any = LocalRuntime, **settings: Any
    ) -> Any:
        config = RunConfig.of(**({"threads": 2, "intervals": 4, "deadline_s": 60} | settings))
        program = bind(model, graph, config.seed)
        parts = assemble(graph, program, config)
        adam = lambda named: torch.optim.Adam([each for _, each in named], lr=lr)  # noqa: E731
        job = training_job(graph, program, parts, config, adam, lambda optimizer: None, NativeBackend())
        cluster = kind(job, pool or ThreadsPool())
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.close()
