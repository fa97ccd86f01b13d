"""When a parameter server accepts an update: in its own session only, and in exact runs only after the epoch before
has ended."""

import threading
import time

import pytest

import dorylus
from dorylus.runtime.fence import OtherSessionError
from dorylus.runtime.parameter_node import END_S, ParameterNode
from dorylus.wire import Frame, Refused

DEADLINE_S = 30.0
SESSION = 3


@pytest.fixture
def started(make_cluster):
    """A parameter server that has just been started."""
    graph = dorylus.communities(num_vertices=64, num_classes=2, num_features=4, average_degree=4, seed=0)
    return make_cluster(
        graph, dorylus.gcn(), kind=lambda job, pool: ParameterNode(job, 0, "127.0.0.1"), intervals=1, threads=1
    )


@pytest.fixture
def node(started):
    """One that is in a session."""
    started.restore(SESSION, None, 0)
    return started


def finish(node, epoch, session=SESSION):
    of = {"interval": 0, "epoch": epoch, "session": session}
    node._answer(Frame({**of, "what": "pull", "known": []}, {}))
    node._answer(Frame({**of, "what": "finish", "steps": []}, {}))


def test_an_update_waits_until_the_epoch_before_was_ended(node):
    finish(node, 0)
    over = threading.Event()
    update = threading.Thread(target=lambda: (finish(node, 1), over.set()))
    update.start()
    assert not over.wait(0.2)
    node.end_epoch(SESSION, 1, loss=1.0, with_state=False)
    assert over.wait(DEADLINE_S)
    update.join()


def test_ending_an_epoch_returns_the_state_on_request(node):
    finish(node, 0)
    state, _ = node.end_epoch(SESSION, 1, loss=1.0, with_state=True)
    assert state.weights.keys() == node.state(SESSION).weights.keys()
    assert node.end_epoch(SESSION, 2, loss=1.0, with_state=False) == (None, 0)


def pull(session, epoch=0):
    return Frame({"what": "pull", "interval": 0, "epoch": epoch, "known": [], "session": session}, {})


CALLS = {
    "key": lambda node, session: node.key(session),
    "state": lambda node, session: node.state(session),
    "synchronise": lambda node, session: node.synchronise(session),
    "end_epoch": lambda node, session: node.end_epoch(session, 1, 1.0, False),
    "restore": lambda node, session: node.restore(session, None, 0),
    "pull": lambda node, session: node._answer(pull(session)),
    "finish": lambda node, session: finish(node, 0, session),
    "latest": lambda node, session: node._answer(Frame({"what": "latest", "session": session}, {})),
}


@pytest.mark.parametrize("what", CALLS)
def test_requests_of_an_earlier_session_are_refused_and_counted(node, what):
    node.restore(SESSION + 1, None, 0)
    with pytest.raises((OtherSessionError, Refused), match=f"session {SESSION} is refused"):
        CALLS[what](node, SESSION)
    assert node.end_epoch(SESSION + 1, 1, loss=1.0, with_state=False) == (None, 1)
    assert node.end_epoch(SESSION + 1, 2, loss=1.0, with_state=False) == (None, 0)


def test_a_server_that_was_started_again_takes_part_in_no_session_that_it_did_not_begin(started):
    with pytest.raises(Refused, match="has begun no session since it was started"):
        started._answer(pull(SESSION))


def test_a_request_that_names_no_session_is_refused(node):
    with pytest.raises(Refused, match="of session 0 is refused"):
        node._answer(Frame({"what": "latest"}, {}))


def test_an_update_that_waits_for_the_end_of_an_epoch_does_not_hold_up_the_next_session(node, monkeypatch):
    finish(node, 0)
    node._answer(pull(SESSION, epoch=1))
    waits, refused, wait = threading.Event(), [], node._wait_for_end

    def noting(*of):
        waits.set()
        wait(*of)

    def late():
        with pytest.raises(Refused) as why:
            node._answer(Frame({"what": "finish", "interval": 0, "epoch": 1, "steps": [], "session": SESSION}, {}))
        refused.append(str(why.value))

    monkeypatch.setattr(node, "_wait_for_end", noting)
    update = threading.Thread(target=late)
    update.start()
    assert waits.wait(DEADLINE_S)
    begun = time.monotonic()
    node.restore(SESSION + 1, None, 0)
    assert time.monotonic() - begun < END_S / 2
    update.join(DEADLINE_S)
    assert refused == [f"session {SESSION} was ended before epoch 1 was."]
