import threading

import pytest

from dorylus.pools import ThreadsPool
from dorylus.saga import dense


@pytest.fixture
def answered(monkeypatch):
    """Replaces the dense run; lists the threads in which calls ran."""
    seen = []
    monkeypatch.setattr(dense, "run", lambda call: seen.append(threading.get_ident()) or f"reply to {call}")
    return seen


def test_a_call_runs_at_once_in_the_thread_that_submits_it(answered):
    replies = []
    ThreadsPool().submit("call", replies.append, pytest.fail)
    assert replies == ["reply to call"]
    assert answered == [threading.get_ident()]


def test_an_error_goes_to_failed(monkeypatch):
    def refuse(call):
        raise ArithmeticError(call)

    monkeypatch.setattr(dense, "run", refuse)
    errors = []
    ThreadsPool().submit("call", pytest.fail, errors.append)
    assert [type(error) for error in errors] == [ArithmeticError]


def test_an_error_of_the_reply_callback_is_not_the_calls_error(answered):
    def refuse(reply):
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        ThreadsPool().submit("call", refuse, pytest.fail)
