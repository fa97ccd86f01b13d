"""The line from a graph server to one parameter server: requests of all its threads, one after the other."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from dorylus.pipeline import Task
from dorylus.wire import Client, ClientKeys, Frame, WireError
from dorylus.wire.frames import BETWEEN_SERVERS

KEPT_VERSIONS = 8
CONNECT_S = 5.0  # a server that cannot be dialled for so long is gone
ANSWER_S = 30.0  # and so is one that takes so long to answer
_LOOK_S = 0.2  # how often a thread that waits for an answer looks whether it was closed
_END_S = 5.0

Answered = Callable[[Frame | WireError], None]
Request = tuple[Mapping[str, object], Mapping[str, NDArray[Any]], Answered]


class ParameterLine:
    """Asks a parameter server, in one session; any thread may, and one thread here does."""

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
        """Ask, after all that was asked before; ``answered`` hears the answer, or why there is none."""
        with self._closing:
            if not self._closed:
                self._requests.put(({**header, "session": self._session}, arrays, answered))
                return
        answered(WireError(f"the line to {self._client.address} is closed: session {self._session} is over."))

    def ask(self, header: Mapping[str, object], arrays: Mapping[str, NDArray[Any]], timeout_s: float) -> Frame:
        """Its answer."""
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
        """Its weights for a task, fetched unless that version is at hand."""
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
        """Bytes of weights fetched since this was last asked."""
        with self._pulling:
            fetched, self._fetched = self._fetched, 0
            return fetched

    def close(self) -> None:
        """Hang up; who waits for an answer is told."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._requests.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    def _work(self) -> None:
        lost: WireError | None = None  # whoever lost the server has lost what it knew: nothing more is asked of it
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
            while not self._client.has_answer(number, _LOOK_S):
                if self._closed or time.monotonic() > until:
                    why = "we hung up" if self._closed else f"it has not answered for {ANSWER_S:g} s"
                    raise WireError(f"a parameter server at {self._client.address} is lost: {why}.")
            return self._client.receive(number, _LOOK_S)
        except WireError as why:
            return why
