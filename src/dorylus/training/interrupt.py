"""Signals that end a run (Ctrl-C, SIGTERM and SIGHUP) as requests that leave time to save.

After Ctrl-C the epoch in progress finishes; a second Ctrl-C ends the process immediately. SIGTERM and SIGHUP come from
Kubernetes, Slurm, spot machines and closing terminals, which kill a process that does not end in time: the run has
``grace_s`` seconds to save and close, after which the process ends itself. Handlers are changed in the main thread
only, during a run, and only where no other code has set one.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Self

from dorylus.errors import Terminated

GRACE_S = 20.0
TO_SAVE = 0.25  # the share of the grace that is left for saving and closing when an epoch is dropped
SAME_S = 0.25  # a second signal this soon is the same request, sent to the process and to its group
ENDING = (signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = b"\x1b[?25h"


def end_process(number: int) -> None:
    """End this process immediately, as by a signal; its children end when their connection to it closes."""
    for terminal in (1, 2):
        with suppress(OSError):
            if os.isatty(terminal):
                os.write(terminal, SHOW_CURSOR)  # a progress bar hides it
    os._exit(128 + number)


class Countdown:
    """Starts with the first signal: drops the epoch when time gets short, and ends the process when time is over."""

    def __init__(self, number: int, grace_s: float) -> None:
        self.number, self.began_s = number, time.monotonic()
        self._end_s = self.began_s + grace_s
        self._drop_s = self._end_s
        self._drop: Callable[[], None] | None = None
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, drop: Callable[[], None] | None = None, expected_s: float | None = None) -> None:
        """Count down. Work that would end too late is dropped immediately, other work when the time is short."""
        if drop is not None:
            latest_s = self.began_s + (self._end_s - self.began_s) * (1 - TO_SAVE)
            too_late = expected_s is not None and expected_s > latest_s
            self._drop_s, self._drop = (self.began_s if too_late else latest_s), drop
        self._thread = threading.Thread(target=self._count, name="dorylus-grace", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stop the countdown: the run has ended."""
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join()

    def _count(self) -> None:
        if not self._cancelled.wait(max(0.0, self._drop_s - time.monotonic())):
            with suppress(Exception):  # the process ends next: errors are ignored
                if self._drop is not None:
                    self._drop()
        if not self._cancelled.wait(max(0.0, self._end_s - time.monotonic())):
            end_process(self.number)


_REPLACED = (__name__, "ray._private.worker")  # handlers that may be replaced: Ray sets one in every driver
_countdown: Countdown | None = None  # changed by the main thread only, as are the guards
_guards: list[object] = []


def _counting(number: int, grace_s: float) -> Countdown | None:
    """Start a countdown at the first signal; None for a repeated signal. A second request ends the process."""
    global _countdown
    if _countdown is None:
        _countdown = Countdown(number, grace_s)
        return _countdown
    if time.monotonic() - _countdown.began_s >= SAME_S:
        end_process(number)
    return None


def _leave(guard: object) -> None:
    """Remove a guard; with the last one, end the countdown."""
    global _countdown
    _guards.remove(guard)
    if not _guards and _countdown is not None:
        _countdown.cancel()
        _countdown = None


def _termination_behind(error: BaseException | None) -> Terminated | None:
    """The request behind a SystemExit of a library: Ray raises its own when it is interrupted while it waits."""
    if _countdown is None or not isinstance(error, SystemExit) or error.code == 128 + _countdown.number:
        return None
    return Terminated(_countdown.number)


def _is_free(number: int) -> bool:
    """Whether a signal has its default action, or the handler of an outer guard."""
    handler = signal.getsignal(number)
    return handler is signal.SIG_DFL or getattr(handler, "__module__", None) in _REPLACED


def in_main_thread() -> bool:
    """Whether handlers can be set in this thread."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def terminable(grace_s: float = GRACE_S) -> Iterator[None]:
    """While it is open, SIGTERM and SIGHUP raise :class:`Terminated` in the main thread immediately."""

    def ask(number: int, frame: FrameType | None) -> None:
        countdown = _counting(number, grace_s)
        if countdown is not None:
            countdown.start()
            raise Terminated(number)

    guard = object()
    before: dict[int, Any] = {}
    if not in_main_thread():
        yield
        return
    _guards.append(guard)
    try:
        for number in ENDING:
            if _is_free(number):
                before[number] = signal.signal(number, ask)
        yield
    except SystemExit as error:
        raise _termination_behind(error) or error from None
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)
        _leave(guard)


class Interrupt:
    """While it is open, the first Ctrl-C only sets ``requested``; after :meth:`defer`, so do SIGTERM and SIGHUP.

    Those begin a countdown of ``grace_s`` seconds: ``drop`` is called, in another thread, when the epoch in progress
    has to be dropped. Before :meth:`defer` they raise :class:`Terminated`. Nothing changes outside the main thread, nor
    in a process that was started to ignore these signals.
    """

    def __init__(self, grace_s: float = GRACE_S, drop: Callable[[], None] = lambda: None) -> None:
        self.requested = False
        self.signal = int(signal.SIGINT)
        self.expected_s: float | None = None  # when the epoch in progress should be over, by time.monotonic()
        self.deferring = False
        self._grace_s, self._drop = grace_s, drop
        self._before: dict[int, Any] = {}

    @property
    def ending(self) -> bool:
        """Whether the run has to end within the grace."""
        return self.signal in ENDING and self.requested

    def defer(self) -> None:
        """Treat signals as requests from now on: there is something to save."""
        self.deferring = True

    def __enter__(self) -> Self:
        if in_main_thread():
            _guards.append(self)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._ask)
            for number in ENDING:
                if _is_free(number):
                    self._before[number] = signal.signal(number, self._ask_to_end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in list(self._before):
            self._give_back(number)
        if self in _guards:
            termination = _termination_behind(error)
            _leave(self)
            if termination is not None:
                raise termination from None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._give_back(number)

    def _ask_to_end(self, number: int, frame: FrameType | None) -> None:
        countdown = _counting(number, self._grace_s)
        if countdown is None:
            return
        if not self.deferring:
            countdown.start()
            raise Terminated(number)
        self.signal, self.requested = number, True
        countdown.start(self._drop, self.expected_s)

    def _give_back(self, number: int) -> None:
        if number in self._before:
            signal.signal(number, self._before.pop(number))
