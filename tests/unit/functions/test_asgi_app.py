"""The HTTP entry point without a server: requests as the messages a server would send."""

import asyncio

import pytest

from dorylus.functions.asgi import App
from dorylus.wire.frames import pack, unpack

FRAME = b"".join(pack({"task": "t", "program": "unknown"}, {}))


@pytest.fixture
def app():
    made = App(max_bytes=1000)
    yield made
    made.close()


def request(app, method="POST", path="/", body=(FRAME,), headers=()):
    """(status, content) of a request whose body comes in several messages."""
    coming = [{"type": "http.request", "body": part, "more_body": True} for part in body[:-1]]
    coming.append({"type": "http.request", "body": body[-1] if body else b""})
    sent = []

    async def receive():
        return coming.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(app({"type": "http", "method": method, "path": path, "headers": list(headers)}, receive, send))
    return sent[0]["status"], sent[1]["body"]


def test_a_frame_posted_is_answered_with_a_frame(app):
    status, content = request(app, body=(FRAME[:5], FRAME[5:]))
    assert status == 200
    assert unpack(content).header["missing"] == "unknown"


def test_garbage_is_answered_with_an_error_frame(app):
    status, content = request(app, body=(b"garbage",))
    assert status == 200
    assert unpack(content).header["kind"] == "frame"


def test_health_needs_no_token(app, monkeypatch):
    monkeypatch.setenv("DORYLUS_FUNCTION_TOKEN", "secret")
    assert request(app, "GET", "/health") == (200, b"ok")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 405), ("POST", "/elsewhere", 404)])
def test_any_other_method_or_path_is_refused(app, method, path, status):
    assert request(app, method, path)[0] == status


def test_a_body_longer_than_a_frame_may_be_is_refused(app):
    assert request(app, body=(bytes(600), bytes(600)))[0] == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((), 401),
        (((b"authorization", b"Bearer wrong"),), 401),
        (((b"Authorization", b"Bearer secret"),), 200),
    ],
)
def test_with_a_token_in_the_environment_only_requests_that_carry_it_are_accepted(app, monkeypatch, headers, status):
    monkeypatch.setenv("DORYLUS_FUNCTION_TOKEN", "secret")
    assert request(app, headers=headers)[0] == status


def test_the_threads_go_when_the_server_shuts_down():
    app, sent = App(), []
    coming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive():
        return coming.pop(0)

    async def send(message):
        sent.append(message["type"])

    asyncio.run(app({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
