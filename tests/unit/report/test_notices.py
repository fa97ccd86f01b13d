import pytest

from dorylus.report.notices import notice


def told(**record):
    return notice({"kind": "cluster", **record})


def test_servers_are_told_where_they_are_once():
    servers = {"graph": [("10.0.0.3", 7), ("10.0.0.2", 8), ("10.0.0.2", 9)], "parameter": [("10.0.0.4", 1)]}
    assert told(what="session", session=1, epoch=0, servers=servers) == "graph servers are on 10.0.0.2, 10.0.0.3"
    assert told(what="session", session=2, epoch=4, servers=servers) is None


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
            {"what": "shrunk", "epoch": 3, "servers": 2},
            "servers did not come back: going on with 2 after epoch 3",
        ),
        ({"what": "something new"}, None),
    ],
)
def test_faults_and_what_became_of_them_are_told(record, line):
    assert told(**record) == line


def test_most_records_are_worth_no_line():
    assert notice({"kind": "epoch", "epoch": 1}) is None
