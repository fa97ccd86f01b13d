import signal
import threading

import pytest

from dorylus.errors import Terminated
from dorylus.training.interrupt import Countdown, Interrupt, terminable


@pytest.fixture(autouse=True)
def signals_as_in_a_terminal():
    """A job started in the background inherits signals that are ignored."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    left = [number.name for number, handler in usual.items() if signal.getsignal(number) is not handler]
    for number, handler in before.items():
        signal.signal(number, handler)
    assert left in ([], ["SIGINT"])


def test_a_process_that_ignores_ctrl_c_continues_to_ignore_it():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert not interrupt.requested
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_the_first_ctrl_c_is_a_request():
    with Interrupt() as interrupt:
        assert not interrupt.requested
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested


def test_the_second_does_not_wait():
    with Interrupt():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("requested", [False, True])
def test_afterwards_ctrl_c_behaves_as_before(requested):
    before = signal.getsignal(signal.SIGINT)
    with Interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
        if requested:
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_inside_gives_ctrl_c_back_too():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="inside"), Interrupt():
        raise ValueError("inside")
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_is_changed():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work():
        with Interrupt() as interrupt:
            seen.append((signal.getsignal(signal.SIGINT), interrupt.requested))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(before, False)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_before_there_is_anything_to_save_a_signal_ends_at_once(number, code):
    with pytest.raises(Terminated) as ended, Interrupt():
        signal.raise_signal(number)
    assert ended.value.code == code
    assert ended.value.signal is number
    assert not isinstance(ended.value, Exception)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_afterwards_the_first_is_a_request(number):
    with Interrupt() as interrupt:
        interrupt.defer()
        signal.raise_signal(number)
        assert interrupt.requested
        assert interrupt.ending
        assert interrupt.signal == number


def test_the_same_signal_again_within_a_moment_is_the_same_request():
    with Interrupt() as interrupt:
        interrupt.defer()
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.signal == signal.SIGHUP


def test_a_deferred_signal_within_a_terminable_command_is_still_a_request():
    with terminable(), Interrupt() as interrupt:
        interrupt.defer()
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.requested


def test_a_command_ends_at_once_and_the_handlers_are_put_back():
    with pytest.raises(Terminated), terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None], ids=["ignored", "the caller's own"])
@pytest.mark.parametrize("guard", [terminable, Interrupt])
def test_a_custom_handler_is_left_alone(handler, guard):
    signal.signal(signal.SIGTERM, handler)
    with guard():
        assert signal.getsignal(signal.SIGTERM) is handler
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.parametrize("guard", [Interrupt, terminable])
def test_a_library_that_makes_its_own_exit_of_a_signal_does_not_hide_it(guard):
    """Ray does, where a signal comes while it waits for an actor."""

    def wait_as_ray_does():
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            raise SystemExit(1) from None

    with pytest.raises(Terminated) as ended, guard():
        wait_as_ray_does()
    assert ended.value.signal == signal.SIGTERM


@pytest.mark.parametrize("guard", [Interrupt, terminable])
def test_an_exit_without_a_signal_is_unchanged(guard):
    with pytest.raises(SystemExit) as ended, guard():
        raise SystemExit(3)
    assert ended.value.code == 3


@pytest.mark.parametrize(("expected_s", "dropped"), [(1e9, True), (0.0, False), (None, False)])
def test_work_that_is_expected_to_end_too_late_is_dropped_at_once(expected_s, dropped):
    given_up = threading.Event()
    countdown = Countdown(signal.SIGTERM, grace_s=1e6)
    countdown.start(given_up.set, expected_s)
    assert given_up.wait(5 if dropped else 0) is dropped
    countdown.cancel()


def test_an_epoch_that_cannot_end_within_the_grace_is_dropped():
    given_up = threading.Event()
    with Interrupt(grace_s=8.0, drop=given_up.set) as interrupt:
        interrupt.defer()
        interrupt.expected_s = 1e9
        signal.raise_signal(signal.SIGTERM)
        assert given_up.wait(5)
