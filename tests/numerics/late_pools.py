"""Pools that stress an asynchronous run: one answers late and at random, one delays the answers of one interval."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from dorylus.saga import dense
from dorylus.saga.dense import Call, Reply

Answer = tuple[Call, Callable[[Reply], None], Callable[[BaseException], None]]


def _answer(call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
    try:
        reply = dense.run(call)
    except Exception as error:
        failed(error)
    else:
        done(reply)


class ShuffledPool:
    """Answers from threads of its own in random order, newer calls with a higher probability than older ones."""

    def __init__(self, seed: int = 0, threads: int = 2) -> None:
        # One call, one thread: torch's own threads would cut sums differently, and change their last bits.
        self._threads = ThreadPoolExecutor(
            threads, thread_name_prefix="dorylus-pool", initializer=torch.set_num_threads, initargs=(1,)
        )
        self._rng, self._lock = random.Random(seed), threading.Lock()
        self._waiting: list[Answer] = []

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        with self._lock:
            self._waiting.append((call, done, failed))
        self._threads.submit(self._answer_any)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _answer_any(self) -> None:
        with self._lock:
            newest_first = int(len(self._waiting) * self._rng.random() ** 3)
            taken = self._waiting.pop(-1 - newest_first)
        _answer(*taken)


class StragglerPool:
    """Answers at once, except for one interval: its answers wait until all others have run ahead as far as they may.

    In an epoch e after the first (which is exact, so all would wait for it) that is: when every other interval has
    had its answers of epoch e + ``staleness``, or of the last epoch there is. Nobody sleeps, and on one thread
    everything happens in the same order each time.
    """

    def __init__(self, straggler: int, num_intervals: int, staleness: int, last_epoch: int) -> None:
        self._straggler, self._staleness, self._last_epoch = straggler, staleness, last_epoch
        self._others = [interval for interval in range(num_intervals) if interval != straggler]
        self._answers: Counter[tuple[int, int]] = Counter()
        self._held: Answer | None = None
        self._lock = threading.Lock()
        self.times_held = 0

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        if not any(weight.requires_grad for weight in call.weights.values()):  # evaluation
            _answer(call, done, failed)
            return
        with self._lock:
            if call.task.interval == self._straggler and not self._may_answer(call):
                self._held = call, done, failed
                self.times_held += 1
                return
        self._answer(call, done, failed)

    def close(self) -> None:
        self._held = None

    def _answer(self, *given: *Answer) -> None:
        _answer(*given)
        with self._lock:
            task = given[0].task
            self._answers[task.interval, task.epoch] += 1
            held = self._held if self._held is not None and self._may_answer(self._held[0]) else None
            if held is not None:
                self._held = None
        if held is not None:
            self._answer(*held)

    def _may_answer(self, call: Call) -> bool:
        """Under the lock: whether the others are as far ahead of the straggler's call as they can be."""
        epoch = call.task.epoch
        ahead = min(epoch + self._staleness, self._last_epoch)
        all_answers = self._answers[self._straggler, 0]
        return epoch == 0 or all(self._answers[other, ahead] == all_answers for other in self._others)
