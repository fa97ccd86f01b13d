import signal
import threading

import pytest

from dorylus.training.interrupt import Interrupt


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
