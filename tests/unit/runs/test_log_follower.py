import json

import pytest

from dorylus.runs import LogFollower


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder / "log.jsonl"


@pytest.fixture
def follower(path):
    made = LogFollower(path)
    yield made
    made.close()


def line(kind, **fields):
    return json.dumps({"kind": kind, **fields}) + "\n"


def add(path, text):
    with open(path, "a") as file:
        file.write(text)


def test_a_log_that_is_not_there_yet_has_no_records(follower, path):
    assert follower.read() == (False, [])
    add(path, line("run"))
    assert follower.read() == (True, [{"kind": "run"}])
    assert follower.read() == (False, [])


def test_only_what_is_new_is_read(follower, path):
    add(path, line("run") + line("epoch", epoch=1))
    assert len(follower.read()[1]) == 2
    add(path, line("epoch", epoch=2))
    assert follower.read() == (False, [{"kind": "epoch", "epoch": 2}])


def test_a_line_counts_when_it_is_whole(follower, path):
    text = line("epoch", epoch=1)
    add(path, line("run") + text[:9])
    assert len(follower.read()[1]) == 1
    add(path, text[9:-1])
    assert follower.read()[1] == []
    add(path, "\n")
    assert follower.read() == (False, [{"kind": "epoch", "epoch": 1}])


def test_a_torn_line_that_is_cut_off_leaves_nothing(follower, path):
    whole = line("run")
    add(path, whole + '{"kind": "ep')
    follower.read()
    path.write_text(whole)
    add(path, line("epoch", epoch=1))
    assert follower.read() == (False, [{"kind": "epoch", "epoch": 1}])


def test_lines_that_are_no_records_are_passed_over(follower, path):
    add(path, line("run") + "\0\0\n[]\nnonsense\n" + '{"t": 1}\n{"kind": 3}\n' + line("stop"))
    assert [record["kind"] for record in follower.read()[1]] == ["run", "stop"]


def test_a_resumed_run_is_read_again_without_what_no_longer_counts(follower, path):
    add(path, line("run", resumed_from=None) + line("epoch", epoch=1) + line("epoch", epoch=2, loss=5))
    follower.read()
    add(path, line("run", resumed_from=1) + line("epoch", epoch=2, loss=6))
    is_anew, records = follower.read()
    assert is_anew
    assert [record.get("loss") for record in records if record.get("epoch") == 2] == [6]
    assert follower.read() == (False, [])


def test_a_log_that_was_resumed_before_is_read_as_it_counts(follower, path):
    add(path, line("run") + line("epoch", epoch=1) + line("run", resumed_from=0) + line("epoch", epoch=1))
    assert [record["kind"] for record in follower.read()[1]] == ["run", "run", "epoch"]


def test_a_log_that_was_replaced_is_read_from_its_start(follower, path):
    add(path, line("run") + line("epoch", epoch=1))
    follower.read()
    other = path.with_name("other")
    other.write_text(line("run") + line("epoch", epoch=9) + line("stop"))
    other.replace(path)
    is_anew, records = follower.read()
    assert (is_anew, len(records)) == (True, 3)


def test_a_folder_that_is_moved_is_followed(follower, path, tmp_path):
    add(path, line("run"))
    follower.read()
    path.parent.rename(tmp_path / "moved")
    add(tmp_path / "moved" / "log.jsonl", line("stop"))
    assert follower.read() == (False, [{"kind": "stop"}])
