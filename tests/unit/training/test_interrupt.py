import signal
import threading

import pytest

from dorylus.training.interrupt import Interrupt


@pytest.fixture(autouse=True)
def ctrl_c_as_in_a_terminal():
    """A job started in the background inherits a Ctrl-C that is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert not interrupt.asked
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_the_first_ctrl_c_is_a_request():
    with Interrupt() as interrupt:
        assert not interrupt.asked
        signal.raise_signal(signal.SIGINT)
        assert interrupt.asked


def test_the_second_does_not_wait():
    with Interrupt():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("asked", [False, True])
def test_afterwards_ctrl_c_does_what_it_did_before(asked):
    before = signal.getsignal(signal.SIGINT)
    with Interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
        if asked:
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
            seen.append((signal.getsignal(signal.SIGINT), interrupt.asked))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(before, False)]
