"""The parts of Ray that a pool needs, in this process: a store, and tasks that one thread executes.

Whatever is stored, sent or answered is pickled on the way, as between processes.
"""

import itertools
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import ray

from dorylus.pools.pacing import Policy
from dorylus.pools.ray import ClusterCores, RayPool

_numbers = itertools.count()
_refs: WeakValueDictionary[int, Any] = WeakValueDictionary()
_one_at_a_time = threading.Lock()


class Ref:
    """A reference to something stored, or to the answer of a task."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self._future: Future[Any] = Future()
        _refs[self.number] = self

    def hex(self) -> str:
        return str(self.number)

    def future(self) -> "Future[Any]":
        return self._future

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return _known, (self.number,)


def _known(number: int) -> Ref:
    return _refs[number]


class InProcessRay:
    """Stands in for the module ``ray``, connected to a cluster of nodes with so many cores.

    ``held``: tasks wait in :attr:`tasks` until the test completes them.
    """

    exceptions, cloudpickle = ray.exceptions, ray.cloudpickle

    def __init__(self, *cores: float, groups: tuple[dict[str, Any], ...] = (), held: bool = False) -> None:
        self._cores, self._held = cores or (2.0,), held
        self.util = SimpleNamespace(placement_group_table=lambda: dict(enumerate(groups)))
        self.options: dict[str, Any] = {}
        self.stored: dict[int, Any] = {}
        self.tasks: list[Task] = []
        self.cancelled: list[Ref] = []
        self.attempt = 0
        self._thread = ThreadPoolExecutor(1)

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": f"n{k}", "Alive": True, "Resources": {"CPU": has}} for k, has in enumerate(self._cores)]

    def available_resources(self) -> dict[str, float]:
        return {}

    def put(self, thing: Any) -> Ref:
        ref = Ref()
        self.stored[ref.number] = self._travelled(thing)
        return ref

    def get(self, ref: Ref) -> Any:
        return self.stored[ref.number]

    def get_runtime_context(self) -> Any:
        core = SimpleNamespace(get_current_task_attempt_number=lambda: self.attempt)
        return SimpleNamespace(worker=SimpleNamespace(core_worker=core))

    def remote(self, **options: Any) -> Any:
        self.options |= options
        return partial(_Remote, self)

    def cancel(self, ref: Ref) -> None:
        self.cancelled.append(ref)

    def send(self, function: Any, arguments: tuple[Any, ...]) -> Ref:
        task = Task(self, function, self._travelled(arguments))
        self.tasks.append(task)
        if not self._held:
            self._thread.submit(task.carry_out)
        return task.ref

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _travelled(self, thing: Any) -> Any:
        return self.cloudpickle.loads(self.cloudpickle.dumps(thing))


class Task:
    """A task that was sent."""

    def __init__(self, twin: InProcessRay, function: Any, arguments: tuple[Any, ...]) -> None:
        self._twin, self._function, self._arguments = twin, function, arguments
        self.ref = Ref()

    def carry_out(self) -> None:
        """Execute it, as if in a process whose Ray is the twin."""
        try:
            with _seen(self._twin):
                answer = self._function(*self._arguments)
            self.ref.future().set_result(self._twin._travelled(answer))
        except Exception as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Fail the task with an error of Ray."""
        self.ref.future().set_exception(error)


class _Remote:
    def __init__(self, twin: InProcessRay, function: Any) -> None:
        self._twin, self._function = twin, function

    def options(self, **options: Any) -> "_Remote":
        self._twin.options |= options
        return self

    def remote(self, *arguments: Any) -> Ref:
        return self._twin.send(self._function, arguments)


@contextmanager
def _seen(twin: Any) -> Iterator[None]:
    with _one_at_a_time:
        real, sys.modules["ray"] = sys.modules["ray"], twin
        try:
            yield
        finally:
            sys.modules["ray"] = real


class PoolOnTwin(RayPool):
    """A pool on a twin of its own."""

    def __init__(self, twin: InProcessRay | None = None, policy: Policy | None = None) -> None:
        self.twin = InProcessRay() if twin is None else twin
        super().__init__(self.twin, ClusterCores.of(self.twin), Policy() if policy is None else policy)

    def close(self) -> None:
        super().close()
        self.twin.close()
