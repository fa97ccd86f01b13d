import pytest

from dorylus.wire.sockets import DISCONNECTED, HANDSHAKE_FAILED, HANDSHAKE_SUCCEEDED, StrangerCounter


def strangers(*events):
    counter = StrangerCounter()
    for event in events:
        counter.add(event)
    return counter.count


def test_clients_that_come_and_go_are_no_strangers():
    assert (
        strangers(
            HANDSHAKE_SUCCEEDED, HANDSHAKE_SUCCEEDED, DISCONNECTED, HANDSHAKE_SUCCEEDED, DISCONNECTED, DISCONNECTED
        )
        == 0
    )


@pytest.mark.parametrize("event", HANDSHAKE_FAILED)
def test_a_failed_handshake_is_a_stranger_once(event):
    assert strangers(event, DISCONNECTED, event, DISCONNECTED) == 2
    assert strangers(HANDSHAKE_SUCCEEDED, event, DISCONNECTED, DISCONNECTED) == 1


def test_a_connection_that_leaves_without_a_handshake_is_a_stranger():
    assert strangers(DISCONNECTED, DISCONNECTED) == 2


def test_strangers_without_a_handshake_count_once_they_outnumber_the_clients():
    assert strangers(HANDSHAKE_SUCCEEDED, *[DISCONNECTED] * 10) == 9
    assert strangers(HANDSHAKE_SUCCEEDED, *[DISCONNECTED] * 10, DISCONNECTED) == 10


def test_the_count_never_shrinks():
    assert strangers(DISCONNECTED, DISCONNECTED, HANDSHAKE_SUCCEEDED, HANDSHAKE_SUCCEEDED) == 2
