import pytest

from dorylus.wire.sockets import GONE, TURNED_AWAY, WELCOMED, Turnstile


def strangers(*events):
    turnstile = Turnstile()
    for event in events:
        turnstile.note(event)
    return turnstile.strangers


def test_clients_who_come_and_go_are_no_strangers():
    assert strangers(WELCOMED, WELCOMED, GONE, WELCOMED, GONE, GONE) == 0


@pytest.mark.parametrize("event", TURNED_AWAY)
def test_who_is_turned_away_is_a_stranger_once(event):
    assert strangers(event, GONE, event, GONE) == 2
    assert strangers(WELCOMED, event, GONE, GONE) == 1


def test_who_leaves_without_a_handshake_is_a_stranger():
    assert strangers(GONE, GONE) == 2


def test_strangers_told_by_nobody_count_once_they_outnumber_the_clients():
    assert strangers(WELCOMED, *[GONE] * 10) == 9
    assert strangers(WELCOMED, *[GONE] * 10, GONE) == 10


def test_the_count_never_shrinks():
    assert strangers(GONE, GONE, WELCOMED, WELCOMED) == 2
