"""The weights of parameter servers in processes of their own, as a graph server uses them.

A graph server has one connection to each parameter server, which sends the requests of all its threads in turn.
"""

import queue
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dorylus.pipeline import Kind, Task
from dorylus.runtime.engine import Done, Failed
from dorylus.runtime.parameter_node import slices_of
from dorylus.runtime.server_pass import BACKWARD
from dorylus.saga import Call, Reply
from dorylus.wire import BETWEEN_SERVERS, Client, ClientKeys, Frame, WireError

KEPT_VERSIONS = 8
CONNECT_S = 5.0  # a server that cannot be dialled for so long is lost
ANSWER_S = 30.0  # a server that does not answer for so long is lost
_POLL_S = 0.2  # how often a thread that waits for an answer checks whether the connection was closed
_END_S = 5.0

Answered = Callable[[Frame | WireError], None]
Request = tuple[Mapping[str, object], Mapping[str, NDArray[Any]], Answered]


class ParameterConnection:
    """The requests of one session to one parameter server; any thread may submit, and one thread sends them in turn."""

    def __init__(self, address: str, key: Mapping[str, object], session: int) -> None:
        self._client = Client(address, ClientKeys.from_header(key), limits=BETWEEN_SERVERS)
        self._session = session
        self._pulling = threading.Lock()
        self._versions: dict[tuple[int, ...], dict[str, Tensor]] = {}
        self._fetched = 0
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._closing, self._closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._work, name="dorylus-weights", daemon=True)
        self._thread.start()

    def submit(self, header: Mapping[str, object], arrays: Mapping[str, NDArray[Any]], answered: Answered) -> None:
        """Send a request after all earlier ones; ``answered`` receives the answer, or the error."""
        with self._closing:
            if not self._closed:
                self._requests.put(({**header, "session": self._session}, arrays, answered))
                return
        answered(WireError(f"the connection to {self._client.address} is closed: session {self._session} is over."))

    def ask(self, header: Mapping[str, object], arrays: Mapping[str, NDArray[Any]], timeout_s: float) -> Frame:
        """The answer to a request."""
        answers: queue.SimpleQueue[Frame | WireError] = queue.SimpleQueue()
        self.submit(header, arrays, answers.put)
        try:
            answer = answers.get(timeout=timeout_s)
        except queue.Empty:
            raise WireError(f"{self._client.address} did not answer within {timeout_s:g} s.") from None
        if isinstance(answer, WireError):
            raise answer
        return answer

    def pull(self, task: Task, read: Callable[[Frame], dict[str, Tensor]], timeout_s: float) -> Mapping[str, Tensor]:
        """The server's weights for a task, fetched unless that version is kept here."""
        with self._pulling:
            header = {"what": "pull", "interval": task.interval, "epoch": task.epoch, "known": list(self._versions)}
            frame = self.ask(header, {}, timeout_s)
            version = tuple(frame.header["version"])
            if version not in self._versions:
                self._versions[version] = read(frame)
                self._fetched += sum(array.nbytes for array in frame.arrays.values())
                while len(self._versions) > KEPT_VERSIONS:
                    del self._versions[next(iter(self._versions))]
            return self._versions[version]

    def take_fetched(self) -> int:
        """Bytes of weights fetched since the last call."""
        with self._pulling:
            fetched, self._fetched = self._fetched, 0
            return fetched

    def close(self) -> None:
        """Disconnect; requests that wait for an answer get an error."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._requests.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    def _work(self) -> None:
        lost: WireError | None = None  # a server that was lost has lost its state: later requests get the same error
        while (request := self._requests.get()) is not None:
            header, arrays, answered = request
            answer = lost or self._answer(header, arrays)
            lost = answer if isinstance(answer, WireError) else None
            answered(answer)
        self._client.close()

    def _answer(self, header: Mapping[str, object], arrays: Mapping[str, NDArray[Any]]) -> Frame | WireError:
        try:
            number = self._client.send(header, arrays, CONNECT_S)
            until = time.monotonic() + ANSWER_S
            while not self._client.has_answer(number, _POLL_S):
                if self._closed or time.monotonic() > until:
                    why = "the connection was closed" if self._closed else f"it has not answered for {ANSWER_S:g} s"
                    raise WireError(f"a parameter server at {self._client.address} is lost: {why}.")
            return self._client.receive(number, _POLL_S)
        except WireError as why:
            return why


class RemoteWeights:
    """Pulls, pushes and finishes at all parameter servers, each of which holds its own parameters.

    A version is fetched once, for all intervals that use it. An interval's gradients travel together when it finishes;
    no thread waits for that, ``done`` is called when they have arrived. Losses are kept until the epoch is reported.
    """

    def __init__(self, program: nn.Module, servers: Sequence[ParameterConnection], timeout_s: float) -> None:
        self._servers, self._timeout_s = servers, timeout_s
        owners = {name: server for server, its in enumerate(slices_of(program, len(servers))) for name in its}
        first = {parameter: name for name, parameter in program.named_parameters()}
        every = dict(program.named_parameters(remove_duplicate=False))
        self._owner = {alias: owners[first[parameter]] for alias, parameter in every.items()}
        self._trained = {alias: parameter.requires_grad for alias, parameter in every.items()}
        self._lock = threading.Lock()
        self._pinned: dict[tuple[int, int], Mapping[str, Tensor]] = {}
        self._losses: dict[int, dict[int, float]] = defaultdict(dict)
        self._traffic: Counter[str] = Counter()
        self._pushed: dict[tuple[int, int], dict[int, Mapping[str, Tensor]]] = defaultdict(dict)  # by step

    def pull(self, task: Task) -> Mapping[str, Tensor]:
        """The version that the task's interval has pinned for this epoch."""
        at = task.interval, task.epoch
        with self._lock:
            if at in self._pinned:
                return self._pinned[at]
        weights: dict[str, Tensor] = {}
        for server in self._servers:
            weights |= server.pull(task, self._as_weights, self._timeout_s)
        fetched = sum(server.take_fetched() for server in self._servers)  # outside the lock: a connection has its own
        with self._lock:
            self._traffic["weights"] += fetched
            return self._pinned.setdefault(at, weights)

    def latest(self) -> dict[str, Tensor]:
        """The latest version."""
        weights: dict[str, Tensor] = {}
        for server in self._servers:
            weights |= self._as_weights(server.ask({"what": "latest"}, {}, self._timeout_s))
        return weights

    def replied(self, task: Task, call: Call, reply: Reply) -> None:
        """Keep the weight gradients until the interval finishes, and the loss."""
        with self._lock:
            if task.kind in BACKWARD:
                self._pushed[task.interval, task.epoch][task.step] = reply.weight_grads
            self._traffic["weight_gradients"] += sum(grad.nbytes for grad in reply.weight_grads.values())
            if task.kind is Kind.LOSS:
                self._losses[task.epoch][task.interval] = reply.loss

    def finish(self, task: Task, done: Done, failed: Failed) -> None:
        """Push all gradients of the interval in this epoch: they are complete."""
        at, answers = (task.interval, task.epoch), list[Frame | WireError]()

        def answered(answer: Frame | WireError) -> None:
            with self._lock:
                answers.append(answer)
                if len(answers) < len(self._servers):
                    return
                self._pinned.pop(at, None)
            try:
                for each in answers:
                    if isinstance(each, WireError):
                        raise each
                done()
            except Exception as error:  # raised here, it would end the connection's thread
                failed(error)

        with self._lock:
            steps = self._pushed.pop(at, {})
        header = {"what": "finish", "interval": task.interval, "epoch": task.epoch, "steps": list(steps)}
        for number, server in enumerate(self._servers):
            server.submit(header, self._arrays(steps, number), answered)

    def take_losses(self, epoch: int) -> dict[int, float]:
        """Each interval's part of a finished epoch's loss."""
        with self._lock:
            return self._losses.pop(epoch, {})

    def take_traffic(self) -> dict[str, int]:
        """Bytes of weights and gradients since the last call."""
        with self._lock:
            traffic, self._traffic = dict(self._traffic), Counter()
            return traffic

    def close(self) -> None:
        """Disconnect from all servers."""
        for server in self._servers:
            server.close()

    def _arrays(self, steps: Mapping[int, Mapping[str, Tensor]], server: int) -> dict[str, NDArray[Any]]:
        """The gradients of the parameters that a server holds, named by step and parameter."""
        return {
            f"{step}:{name}": grad.contiguous().numpy()
            for step, grads in steps.items()
            for name, grad in grads.items()
            if self._owner[name] == server
        }

    def _as_weights(self, frame: Frame) -> dict[str, Tensor]:
        return {
            name: torch.from_numpy(array.copy()).requires_grad_(self._trained[name])
            for name, array in frame.arrays.items()
        }
