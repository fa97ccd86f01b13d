"""Dense tasks as Ray tasks: on any node of a Ray cluster with a free core.

A call travels as arrays. Its body and its version of the weights are put into Ray's object store once, and fetched once
by each process that needs them. Ray runs a task again when its process or node is lost; tasks are pure, and only the
one answer that Ray returns counts.
"""

import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pickle import PicklingError
from typing import Any

from dorylus.errors import ConfigError, DorylusError, TrainingError, given
from dorylus.extras import check_installed
from dorylus.pools.clock import CallbackQueue
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import Exhausted, PoolFault, Unavailable, name_of
from dorylus.pools.travel import (
    ObjectCache,
    PackedCall,
    ReferenceCache,
    WorkerReply,
    WorkerTally,
    carry_out,
    packed_weights,
    unpacked_weights,
)
from dorylus.saga import Call, Reply

KEPT_WEIGHTS, KEPT_BODIES = 8, 256  # versions and bodies kept, here and in each of Ray's processes
PER_CORE = 2  # tasks submitted for each core: one runs while the rows of the next arrive
CONNECT_S = 5.0
_JOIN_S = 10.0

Done = Callable[[Reply], None]
Failed = Callable[[BaseException], None]


def connected(address: str | None, setting: str = given("pool", "ray")) -> Any:
    """Ray, connected to a cluster; ``setting`` is what needs it."""
    check_installed(setting, "ray")
    import ray

    if ray.is_initialized():
        return ray
    named = address or os.environ.get("RAY_ADDRESS")
    where = f"at {named}" if named else "on this machine"
    start = "start one with `ray start --head`, or give the address of one"
    if named:
        _check_listener(named, f"there is no Ray cluster {where} ({{why}}): {start}.")
    try:
        with _signals_kept():
            ray.init(address=address or "auto", log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray has no common base class for these
        token = "Where there is one, set RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN here (docs/cluster.md)"
        why = " ".join(str(error).split())[:300].rstrip(".")
        raise ConfigError(f"no Ray cluster {where} accepts a connection ({why}). {token}; else {start}.") from error
    return ray


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restores the signal handlers: Ray makes SIGTERM print a C++ stack, with a handler that Python does not see."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler is not None:
                    signal.signal(number, handler)


def _check_listener(address: str, refusal: str) -> None:
    """Refuse an address without a listener, for which Ray would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except OSError as why:
            raise ConfigError(refusal.format(why=why)) from why


@dataclass(frozen=True)
class ClusterCores:
    """The cores of a Ray cluster, and how many of them tasks may have: whole ones, which no placement group holds."""

    nodes: int
    cores: float
    reserved: float
    for_tasks: int

    @staticmethod
    def of(ray: Any) -> "ClusterCores":
        """The cores there are now, in use or not."""
        held: dict[str, float] = {}
        for group in ray.util.placement_group_table().values():
            for bundle, node in group["bundles_to_node_id"].items() if group["state"] == "CREATED" else ():
                held[node] = held.get(node, 0.0) + group["bundles"][bundle].get("CPU", 0.0)
        cores = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]}
        whole = sum(int(has - held.get(node, 0.0) + 1e-6) for node, has in cores.items())
        return ClusterCores(len(cores), sum(cores.values()), sum(held.get(node, 0.0) for node in cores), whole)

    def __str__(self) -> str:
        return f"the Ray cluster has {self.nodes} nodes with {self.cores:g} cores, {self.reserved:g} of them reserved"


def ray_pool(address: str | None, policy: Policy) -> "RayPool":
    """A pool on the Ray cluster at an address, or on the one this process belongs to."""
    ray = connected(address)
    return RayPool(ray, ClusterCores.of(ray), policy)


@dataclass
class _OpenCall:
    call: Call
    done: Done
    failed: Failed
    ref: Any = None
    cancelled: bool = False


class RayPool:
    """Runs each call as a Ray task on one core of any node.

    One thread handles all answers. When none comes for ``policy.down_after_s``, every open call fails.
    """

    def __init__(self, ray: Any, room: ClusterCores, policy: Policy) -> None:
        self._ray, self._room, self._policy = ray, room, policy
        self._task = ray.remote(
            num_cpus=1,
            max_retries=policy.attempts - 1,
            retry_exceptions=False,
            scheduling_strategy="SPREAD",  # also keeps it out of the placement group of the process that submits it
        )(_carry_out).options(name="dorylus dense task")
        self._weights, self._bodies = (
            ReferenceCache(ray.put, KEPT_WEIGHTS, packed_weights),
            ReferenceCache(ray.put, KEPT_BODIES),
        )
        self._answers: queue.SimpleQueue[tuple[int, Future[WorkerReply]] | None] = queue.SimpleQueue()
        self._open: dict[int, _OpenCall] = {}
        self._numbers = count()
        self._answered_s = 0.0  # when Ray last answered, or no call was open
        self._tally = WorkerTally()
        self._lock, self._callbacks = threading.Lock(), CallbackQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def at_most(self) -> int:
        """The number of calls in flight that keeps all cores for tasks busy."""
        return max(1, PER_CORE * self._room.for_tasks)

    def submit(self, call: Call, done: Done, failed: Failed) -> None:
        """Send a call to the cluster."""
        if self._room.for_tasks < 1:
            failed(self._no_room())
            return
        number, opened = self._opened(call, done, failed)
        try:
            ref = opened.ref = self._send(call)
            ref.future().add_done_callback(lambda future: self._answers.put((number, future)))
        except Exception as error:
            if self._close(number) is not None:
                self._callbacks.answer(partial(failed, _send_error(call, error)))
        else:
            if self._closed or opened.cancelled:  # cancelled before its reference was known
                self._cancel(ref)

    def cancel(self, calls: Collection[Call]) -> None:
        """Cancel these calls: Ray drops their tasks, or interrupts those that run."""
        ids = {id(call) for call in calls}
        with self._lock:
            cancelled = {number: opened for number, opened in self._open.items() if id(opened.call) in ids}
            for number, opened in cancelled.items():
                opened.cancelled = True
                del self._open[number]
        for opened in cancelled.values():
            self._cancel(opened.ref)

    def close(self) -> None:
        """Stop; tasks under way are cancelled."""
        with self._lock:
            self._closed = True
            given_up, self._open = list(self._open.values()), {}
            thread = self._thread
        self._callbacks.close()
        for opened in given_up:
            self._cancel(opened.ref)
        self._answers.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)

    def figures(self) -> Mapping[str, Any]:
        """The counts of its tasks."""
        return {"data_path": "object store", **self._tally.figures()}

    def _cancel(self, ref: Any) -> None:
        if ref is not None and self._ray.is_initialized():
            with suppress(Exception):  # the cluster may be gone, and its tasks with it
                self._ray.cancel(ref)

    def _opened(self, call: Call, done: Done, failed: Failed) -> tuple[int, _OpenCall]:
        with self._lock:
            if self._closed:
                raise TrainingError(f"{name_of(call)} was submitted to a pool that is closed: make another pool.")
            if self._thread is None:
                self._thread = threading.Thread(target=self._handle_answers, name="dorylus-ray", daemon=True)
                self._thread.start()
            if not self._open:
                self._answered_s = time.monotonic()
            number, opened = next(self._numbers), _OpenCall(call, done, failed)
            self._open[number] = opened
            return number, opened

    def _send(self, call: Call) -> Any:
        (body, _), (weights, fresh) = self._bodies.ref(call.body), self._weights.ref(call.weights)
        packed = PackedCall.of(call)
        # In a list, or else Ray would fetch both for every task instead of once for every process.
        ref = self._task.remote(packed, [body, weights])
        self._tally.sent(packed.nbytes + (sum(each.nbytes for each in call.weights.values()) if fresh else 0))
        return ref

    def _close(self, number: int) -> _OpenCall | None:
        """Close a call and return it; None if it was closed before."""
        with self._lock:
            self._answered_s = time.monotonic()
            return self._open.pop(number, None)

    def _handle_answers(self) -> None:
        while not self._closed:
            try:
                answer = self._answers.get(timeout=self._time_left_s())
            except queue.Empty:
                self._fail_unanswered()
                continue
            if answer is not None:
                _guarded(partial(self._settle, *answer))
            del answer  # an idle thread references nothing

    def _time_left_s(self) -> float:
        with self._lock:
            waited_s = time.monotonic() - self._answered_s if self._open else 0.0
        return max(0.0, self._policy.down_after_s - waited_s)

    def _settle(self, number: int, future: "Future[WorkerReply]") -> None:
        opened = self._close(number)
        if opened is None:
            return
        error = future.exception()
        if error is not None:
            self._callbacks.answer(partial(opened.failed, self._fault(opened.call, error)))
            return
        answer = future.result()
        self._tally.answered(answer)
        if answer.reply is None:
            assert answer.error is not None
            self._callbacks.answer(partial(opened.failed, answer.error))
        else:
            self._callbacks.answer(partial(opened.done, answer.reply.reply()))

    def _fail_unanswered(self) -> None:
        """No answer has come for too long: all open calls fail, and their tasks are cancelled."""
        with self._lock:
            if not self._open or time.monotonic() - self._answered_s < self._policy.down_after_s:
                return
            given_up, self._open = list(self._open.values()), {}
            for opened in given_up:
                opened.cancelled = True
        why = Unavailable(
            f"Ray has answered none of {len(given_up)} dense tasks for {self._policy.down_after_s:g} s: {self._room}, "
            f"{self._free_cores()} free now. If other work holds the rest, wait for it or add nodes."
        )
        for opened in given_up:
            _guarded(partial(self._callbacks.answer, partial(opened.failed, why)))
        for opened in given_up:  # after the answers: a cluster in trouble may take long to cancel
            self._cancel(opened.ref)

    def _free_cores(self) -> str:
        try:
            return f"{self._ray.available_resources().get('CPU', 0.0):g}"
        except Exception:  # the cluster does not answer
            return "an unknown number"

    def _fault(self, call: Call, error: BaseException) -> PoolFault:
        """The fault of a task for which Ray returned an error."""
        raised, what = self._ray.exceptions, f"{name_of(call)} ({call.body.label})"
        if isinstance(error, raised.WorkerCrashedError | raised.OutOfMemoryError):
            fault: PoolFault = Exhausted(
                f"{what} was tried {self._policy.attempts} times on Ray, the most allowed, and its process ended each "
                f"time: {_in_a_line(error)}. If memory is short, use more intervals."
            )
        elif isinstance(error, raised.RayTaskError):
            fault = Unavailable(
                f"a node of the Ray cluster could not begin {what}: {_in_a_line(error)}. Every node needs the same "
                "dorylus and torch, and the modules that your layers are defined in."
            )
        else:
            fault = Unavailable(f"Ray lost {what}: {type(error).__name__}: {_in_a_line(error)}.")
        fault.__cause__ = error
        return fault

    def _no_room(self) -> ConfigError:
        return ConfigError(
            f"{given('pool', 'ray')} runs each dense task on one core, and no node has one left: {self._room}, by "
            f"placement groups such as that of {given('cluster', 'ray')}. Add nodes, use fewer {given('servers')} or "
            f"{given('threads')}, or {given('pool', 'threads')}."
        )


def _guarded(callback: Callable[[], None]) -> None:
    """Run a callback; its error is reported and not raised, because other callers wait for their answers."""
    try:
        callback()
    except Exception as error:
        details = threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
        threading.excepthook(details)


def _send_error(call: Call, error: Exception) -> DorylusError:
    """The error for a call that cannot be sent: a part of it cannot be pickled, or Ray is gone."""
    reason = f"{name_of(call)} ({call.body.label}) could not be sent to Ray: {_in_a_line(error)}."
    unfit = isinstance(error, TypeError | AttributeError | PicklingError)
    cure = f"Change the layer, or use {given('pool', 'threads')}."
    why = ConfigError(f"{reason} {cure}") if unfit else Unavailable(reason)
    why.__cause__ = error
    return why


def _in_a_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].strip().rstrip(".")[:500] if lines else type(error).__name__


# What follows runs in Ray's processes.


_BODIES, _WEIGHTS = ObjectCache(KEPT_BODIES), ObjectCache(KEPT_WEIGHTS, unpacked_weights)


def _carry_out(packed: PackedCall, shared: list[Any]) -> WorkerReply:
    """The Ray task: run the call on this node."""
    import ray

    body, weights = (
        held.get(ref.hex(), partial(ray.get, ref)) for held, ref in zip((_BODIES, _WEIGHTS), shared, strict=True)
    )
    core = ray.get_runtime_context().worker.core_worker
    attempt = getattr(core, "get_current_task_attempt_number", int)()  # no part of Ray's documented interface
    return carry_out(packed.call(body, weights), attempt, _portable)


def _portable(error: Exception) -> Exception:
    """The error, or one with the same text where it cannot be pickled."""
    from ray import cloudpickle

    try:
        again = cloudpickle.loads(cloudpickle.dumps(error))  # type: ignore[no-untyped-call]
    except Exception:
        again = None
    if type(again) is type(error) and str(again) == str(error):
        return error
    return TrainingError(f"{type(error).__name__}: {error}")
