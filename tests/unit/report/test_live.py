import json
import threading

import pytest
from log_of_a_run import epoch_record, result_record, run_record

from dorylus.report.live import (
    MOST_WAITING,
    HttpAnswer,
    LiveRun,
    RunFigures,
    answer_to,
    header,
    parse,
    pause_s,
)

TOKEN, PORT = "s3cret", 4242
HOST = f"127.0.0.1:{PORT}"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.jsonl"


@pytest.fixture
def run(log):
    live = LiveRun(log, lambda: RunFigures("mine"))
    yield live
    live.close()


def add(log, *records):
    with open(log, "a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def contents(events):
    """(kind, data) of events."""
    lines = [each.decode().split("\n") for each in events]
    assert all(len(each) == 4 and each[2:] == ["", ""] for each in lines)
    return [(each[0].removeprefix("event: "), json.loads(each[1].removeprefix("data: "))) for each in lines]


def answered(path=f"/{TOKEN}/", method="GET", host=HOST):
    return answer_to(parse(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()), TOKEN, PORT, "mine")


def test_a_page_is_sent_everything_then_what_is_new(run, log):
    add(log, run_record(), epoch_record(1))
    assert run.poll()
    stream = run.open()
    ((kind, everything),) = contents(stream.next(0))
    assert (kind, everything["curves"]["loss"]) == ("all", [[1], [1]])
    assert stream.next(0) == []
    add(log, epoch_record(2))
    assert run.poll()
    ((kind, changes),) = contents(stream.next(0))
    assert (kind, changes["more"]["loss"]) == ("more", [[2], [0.5]])


def test_a_page_may_be_opened_before_there_is_a_log(run, log):
    stream = run.open()
    assert not run.poll()
    assert stream.next(0) == []
    add(log, run_record())
    run.poll()
    assert [kind for kind, _ in contents(stream.next(0))] == ["all"]


def test_every_page_gets_every_point(run, log):
    add(log, run_record(), epoch_record(1))
    run.poll()
    first = run.open()
    first.next(0)
    add(log, epoch_record(2))
    run.poll()
    second = run.open()
    ((_, everything),) = contents(second.next(0))
    ((_, changes),) = contents(first.next(0))
    assert everything["curves"]["loss"][0] == [1, 2]
    assert changes["more"]["loss"][0] == [2]


def test_a_resumed_run_is_sent_again_without_the_epochs_that_no_longer_count(run, log):
    add(log, run_record(), *(epoch_record(k) for k in (1, 2, 3)))
    run.poll()
    stream = run.open()
    stream.next(0)
    add(log, run_record(resumed_from=1), epoch_record(2, loss=7.0))
    run.poll()
    ((kind, everything),) = contents(stream.next(0))
    assert (kind, everything["curves"]["loss"]) == ("all", [[1, 2], [1, 7]])


def test_a_page_that_is_far_behind_is_sent_everything_once(run, log):
    add(log, run_record())
    run.poll()
    stream = run.open()
    stream.next(0)
    for epoch in range(1, MOST_WAITING + 5):
        add(log, epoch_record(epoch))
        run.poll()
    ((kind, everything),) = contents(stream.next(0))
    assert (kind, len(everything["curves"]["loss"][0])) == ("all", MOST_WAITING + 4)
    assert stream.next(0) == []


def test_the_end_reaches_a_page_that_waits(run, log):
    add(log, run_record(), result_record())
    run.poll()
    assert run.has_result
    stream, got = run.open(), []
    stream.next(0)
    waiting = threading.Thread(target=lambda: got.append(stream.next(60)))
    waiting.start()
    run.close()
    waiting.join(10)
    assert [kind for kind, _ in contents(got[0])] == ["end"]
    assert stream.next(0) is None


def test_a_page_that_comes_at_the_end_is_sent_everything_and_the_end(run, log):
    add(log, run_record(), result_record())
    run.poll()
    stream = run.open()
    run.close()
    assert [kind for kind, _ in contents(stream.next(0))] == ["all", "end"]


def test_a_closed_page_costs_nothing(run, log, monkeypatch):
    add(log, run_record())
    run.poll()
    run.open().close()
    monkeypatch.setattr(RunFigures, "changes", lambda _: pytest.fail("nothing reads it"))
    add(log, epoch_record(1))
    assert run.poll()


def test_the_page_and_its_events_are_under_the_token():
    assert answered().kind.startswith("text/html")
    assert answered(f"/{TOKEN}/events").streams
    assert answered(host=f"localhost:{PORT}").status == 200


@pytest.mark.parametrize(
    "path", ["/", "/events", f"/{TOKEN}", f"/{TOKEN}x/", f"/{TOKEN[:-1]}/", f"//{TOKEN}/", f"/{TOKEN}/log.jsonl",
             f"/{TOKEN}/../../etc/passwd", f"/{TOKEN}/events/", f"/{TOKEN}/?x"],
)  # fmt: skip
def test_any_other_address_is_not_found(path):
    assert answered(path).status == 404


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", "", f"{HOST}."])
def test_a_request_for_another_host_is_refused_whatever_its_token(host):
    assert answered(host=host).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"])
def test_the_page_can_only_be_read(method):
    assert answered(method=method).status == 405
    assert b"Allow: GET, HEAD" in header(answered(method=method))


@pytest.mark.parametrize(
    "head",
    [
        b"", b"GET", b"GET / HTTP/2", b"GET http://x/ HTTP/1.1", b"GET /\x00 HTTP/1.1", b"get / HTTP/1.1",
        b"GET / HTTP/1.1\r\nHost", b"GET / HTTP/1.1\r\nHost: a\r\nhost: b", b"GET / HTTP/1.1\r\n: x", b"\xff\xfe",
    ],
)  # fmt: skip
def test_a_malformed_request_is_refused(head):
    assert parse(head + b"\r\n\r\n") is None
    assert answer_to(None, TOKEN, PORT, "mine").status == 400


def test_every_answer_forbids_to_keep_frame_or_extend_it():
    for answer in (HttpAnswer(200, b"x"), HttpAnswer(404), answered(f"/{TOKEN}/events")):
        text = header(answer).decode()
        for line in (
            "default-src 'none'", "frame-ancestors 'none'", "Cache-Control: no-store", "Referrer-Policy: no-referrer",
            "X-Content-Type-Options: nosniff", "Connection: close",
        ):  # fmt: skip
            assert line in text
        assert "Access-Control" not in text
        assert "Set-Cookie" not in text


def test_an_old_page_is_drawn_more_rarely_than_a_new_one():
    assert [pause_s(age_s) for age_s in (0, 30, 60, 10**6)] == [1, 1, 2, 10]
