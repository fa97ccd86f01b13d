import pytest

from dorylus.report.terminal import notice, set_up_line


def line_of(**record):
    return notice({"kind": "cluster", **record})


def test_the_machines_of_servers_are_reported_once():
    servers = {"graph": [("10.0.0.3", 7), ("10.0.0.2", 8), ("10.0.0.2", 9)], "parameter": [("10.0.0.4", 1)]}
    assert line_of(what="session", session=1, epoch=0, servers=servers) == "graph servers are on 10.0.0.2, 10.0.0.3"
    assert line_of(what="session", session=2, epoch=4, servers=servers) is None


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            {"what": "fault", "epoch": 3, "error": "a server was lost: killed."},
            "after epoch 3: a server was lost: killed. Waiting for all servers to be back.",
        ),
        (
            {"what": "recovered", "epoch": 3, "seconds": 2.5},
            "all servers are back after 2.5 s; going on after epoch 3",
        ),
        (
            {"what": "straggler", "session": 2, "servers": [1]},
            "a task of graph server 1 goes on after its session has ended; its result will be dropped",
        ),
        ({"what": "refused", "session": 2, "messages": 4}, None),
        (
            {"what": "shrunk", "epoch": 3, "servers": 2},
            "servers did not come back: going on with 2 after epoch 3",
        ),
        ({"what": "something new"}, None),
    ],
)
def test_faults_and_their_outcomes_are_reported(record, line):
    assert line_of(**record) == line


def test_most_records_have_no_line():
    assert notice({"kind": "epoch", "epoch": 1}) is None


def test_the_end_of_a_set_up_is_a_notice_and_its_stages_are_not():
    assert notice({"kind": "set_up", "stage": None, "seconds": 200.0}) == "set up in 3 min 20 s"
    assert notice({"kind": "set_up", "stage": "reading", "done_bytes": 1, "total_bytes": 2, "seconds": 3.0}) is None


def test_a_stage_of_the_set_up_has_a_rate_and_the_time_left():
    record = {"stage": "reading the edges", "done_bytes": 2**30, "total_bytes": 3 * 2**30, "seconds": 4.0}
    assert set_up_line(record) == "reading the edges  256.0 MiB/s  8 s left"
    assert set_up_line(record | {"done_bytes": 3 * 2**30}) == "reading the edges  768.0 MiB/s  <1 s left"
    assert set_up_line(record | {"done_bytes": 0, "seconds": 0.0}) == "reading the edges"
