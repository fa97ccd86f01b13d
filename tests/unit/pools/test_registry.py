"""A pool is one spec. Every decision that depends on the pool reads it, also for pools defined outside the package."""

import subprocess
import sys
import threading
from collections import deque
from dataclasses import replace

import pytest
import torch

import dorylus
from dorylus.config import RunConfig, recut
from dorylus.errors import ConfigError, TrainingError
from dorylus.extras import EXTRAS
from dorylus.pools import POOLS, PoolHandle, PoolSpec, ThreadsPool, register, unregister
from dorylus.saga import dense


class CountingPool(ThreadsPool):
    """A pool defined in this file: it runs tasks in the submitting thread and counts them."""

    def __init__(self):
        self.calls = 0

    def submit(self, call, done, failed):
        self.calls += 1
        super().submit(call, done, failed)


@pytest.fixture
def counting():
    """A pool registered under the name "counting", for one test; the pools that it made."""
    made = []

    def make(request, listeners):
        made.append(CountingPool())
        return PoolHandle(made[-1])

    register(PoolSpec(name="counting", help="counts its calls", maker=make, runs_torch=True, has_functions=False))
    yield made
    unregister("counting")


def test_a_pool_defined_outside_trains_to_the_same_bits_as_threads(counting):
    graph = dorylus.communities(300, num_classes=3, num_features=8, seed=0)

    def losses(pool):
        return dorylus.train(graph, dorylus.gcn(), pool=pool, epochs=4, servers=2, eval_every=0).losses

    assert losses("counting") == losses("threads")
    (pool,) = counting
    assert pool.calls > 0


class DeskPool:
    """A pool defined in this file that derives from nothing: one thread of its own answers, the newest call first.

    It begins when two calls wait, so that one is under way while the other is answered.
    """

    def __init__(self):
        self.threads, self.waiting = set(), []
        self._calls = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._answer, name="desk")
        self._thread.start()

    def submit(self, call, done, failed):
        with self._changed:
            self._calls.append((call, done, failed))
            self._changed.notify()

    def cancel(self, calls):
        with self._changed:
            self._calls = deque(each for each in self._calls if not any(each[0] is call for call in calls))

    def close(self):
        with self._changed:
            self._closed = True
            self._calls.clear()
            self._changed.notify()
        self._thread.join()

    def _answer(self):
        torch.set_num_threads(1)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._calls) > (not self.waiting) or self._closed)
                if self._closed:
                    return
                self.waiting.append(len(self._calls))
                call, done, failed = self._calls.pop()
            self.threads.add(threading.current_thread().name)
            try:
                reply = dense.run(replace(call, kept=None))
            except Exception as error:
                failed(error)
            else:
                done(reply)


@pytest.fixture
def desk():
    """A pool registered under the name "desk", for one test; the pools that it made."""
    made = []

    def make(request, listeners):
        made.append(DeskPool())
        return PoolHandle(made[-1], lambda: {"answered": len(made[-1].waiting)})

    register(PoolSpec(name="desk", help="answers later", maker=make, runs_torch=True, has_functions=False))
    yield made
    unregister("desk")


@pytest.mark.parametrize("mode", ["pipe", "no_pipe"])
def test_a_pool_that_answers_from_its_own_thread_trains_to_the_same_bits_as_threads(desk, mode):
    graph = dorylus.communities(300, num_classes=3, num_features=8, seed=0)

    def trained(pool):
        settings = {"mode": mode, "epochs": 4, "servers": 2, "intervals": 4, "threads": 2, "eval_every": 0}
        return dorylus.train(graph, dorylus.gat(hidden=4, heads=2), pool=pool, **settings)

    result = trained("desk")
    assert result.losses == trained("threads").losses
    (pool,) = desk
    assert pool.threads == {"desk"}
    assert max(pool.waiting) > 1
    assert result.pool["answered"] == len(pool.waiting)
    assert not pool._thread.is_alive()  # closed with the run


def test_what_fails_in_a_thread_of_a_pool_ends_the_run_with_its_reason(desk, monkeypatch):
    def broken(call):
        raise TrainingError("the desk is on fire.")

    monkeypatch.setattr(dense, "run", broken)
    graph = dorylus.communities(300, num_classes=3, num_features=8, seed=0)
    with pytest.raises(TrainingError, match=r"^the desk is on fire\.$"):
        dorylus.train(graph, dorylus.gcn(), pool="desk", epochs=1, threads=1, intervals=4)
    assert not desk[0]._thread.is_alive()


def test_a_pool_defined_outside_is_a_value_of_the_setting_while_it_is_registered(counting):
    config = RunConfig.of(pool="counting")
    with pytest.raises(ConfigError, match="functions=3 with pool='counting', which has no functions"):
        RunConfig.of(pool="counting", functions=3)
    assert recut({"pool": "processes", "functions": 3}, {"pool": "counting"}).functions is None
    assert config.pool in POOLS


def test_a_pool_that_is_not_registered_is_refused():
    with pytest.raises(ConfigError, match="pool='counting' is unknown: the known ones are http"):
        RunConfig.of(pool="counting")
    with pytest.raises(ConfigError, match="pool='counting' is unknown"):
        unregister("counting")


def test_a_name_is_registered_once():
    with pytest.raises(ConfigError, match="pool 'threads' is registered already"):
        register(POOLS["threads"])


@pytest.mark.parametrize("name", ["", "my pool", "mine\n", 3, None])
def test_a_name_is_one_word(name):
    with pytest.raises(ConfigError, match=r"cannot be registered under the name .*: .* use one word"):
        register(PoolSpec(name=name, help="unreachable", maker="no.such.module:make"))
    assert name not in POOLS


def test_a_check_is_called_before_anything_is_written(tmp_path):
    def refuse(request):
        raise ConfigError("no such service")

    register(PoolSpec(name="refused", help="never made", maker="no.such.module:make", check=refuse))
    try:
        graph = dorylus.communities(200, num_classes=2, num_features=4, seed=0)
        with pytest.raises(ConfigError, match="no such service"):
            dorylus.train(graph, dorylus.gcn(), pool="refused", run_dir=tmp_path / "run")
    finally:
        unregister("refused")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", POOLS)
def test_a_spec_names_an_extra_and_functions_that_exist(name):
    spec = POOLS[name]
    assert spec.name == name
    assert spec.extra is None or spec.extra in EXTRAS
    for function in filter(None, (spec.maker, spec.check)):
        module, _, attribute = function.partition(":")
        assert callable(getattr(__import__(module, fromlist=[attribute]), attribute))


@pytest.mark.parametrize(
    "program",
    [
        "import dorylus.pools.registry",
        "from dorylus.config import RunConfig; RunConfig.of(pool='lambda')",
        "from typer.testing import CliRunner; from dorylus.cli.app import app; "
        "assert 'lambda-local' in CliRunner().invoke(app, ['train', '--help']).output",
    ],
    ids=["registry", "settings", "help"],
)
def test_the_names_of_pools_load_neither_torch_nor_optional_packages(program):
    code = f"{program}\nimport sys; print(sorted({{'torch', 'onnxruntime', 'boto3', 'ray', 'zmq'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
