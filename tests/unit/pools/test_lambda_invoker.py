import io
import json
from base64 import b64decode, b64encode

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from dorylus.functions.deploy.access import local_access
from dorylus.pools import aws_lambda
from dorylus.pools.aws_lambda import JSON_LIMIT_BYTES, PAYLOAD_LIMIT_BYTES, LambdaInvoker
from dorylus.pools.pool import Lost, Throttled, Unavailable

LOG = b64encode(b"REPORT RequestId: r\tBilled Duration: 12 ms\tInit Duration: 5.0 ms").decode()


class Client:
    """A boto3 client with scripted answers."""

    def __init__(self, answer, settings):
        self.answer, self.settings, self.requests, self.closed = answer, settings, [], False

    def invoke(self, **arguments):
        self.requests.append(arguments)
        answer = self.answer(arguments) if callable(self.answer) else self.answer
        if isinstance(answer, Exception):
            raise answer
        return {"Payload": io.BytesIO(answer["Payload"]), **{key: answer[key] for key in answer if key != "Payload"}}

    def close(self):
        self.closed = True


@pytest.fixture
def clients(monkeypatch):
    """The clients that are made, and what they answer."""

    class Clients(list):
        answer = None

    made = Clients()

    def client(access, service, **settings):
        made.append(Client(made.answer, {"service": service, **settings}))
        return made[-1]

    monkeypatch.setattr(aws_lambda.AwsAccess, "client", client)
    return made


def echo(arguments):
    return {"Payload": arguments["Payload"], "LogResult": LOG}


@pytest.fixture
def invoker():
    made = LambdaInvoker(local_access(), "f")
    yield made
    made.close()


def test_a_frame_goes_and_comes_as_text_in_json(clients, invoker):
    clients.answer = echo
    answer = invoker.invoke(b"\x00frame\xff", 5.0)
    (request,) = clients[0].requests
    assert b64decode(json.loads(request["Payload"])["frame"]) == b"\x00frame\xff"
    assert request["FunctionName"] == "f"
    assert (answer.content, answer.billed_ms, answer.cold) == (b"\x00frame\xff", 12.0, True)


def test_boto3_does_not_retry_and_every_wait_is_limited(clients, invoker):
    clients.answer = echo
    invoker.invoke(b"x", 5.0)
    settings = clients[0].settings
    assert settings["retries"]["total_max_attempts"] == 1
    assert (settings["connect_timeout"], settings["read_timeout"]) == (5.0, 5.0)


def test_a_client_is_made_once_for_each_time_out_and_few_are_kept(clients, invoker):
    clients.answer = echo
    for timeout_s in (1.0, 1.0, 2.0, 1.0):
        invoker.invoke(b"x", timeout_s)
    assert [client.settings["read_timeout"] for client in clients] == [1.0, 2.0]
    for timeout_s in range(10, 30):
        invoker.invoke(b"x", float(timeout_s))
    assert len(invoker._clients) == 8


def test_without_reports_no_log_is_requested_and_the_billed_time_is_unknown(clients):
    clients.answer = lambda arguments: {"Payload": arguments["Payload"]}
    invoker = LambdaInvoker(local_access(), "f", reports=False)
    answer = invoker.invoke(b"x", 5.0)
    assert "LogType" not in clients[0].requests[0]
    assert (answer.billed_ms, answer.cold) == (None, None)


def test_the_largest_payload_just_fits_into_the_services_limit():
    around = len(json.dumps({"frame": ""}))
    assert JSON_LIMIT_BYTES - 100 < len(b64encode(bytes(PAYLOAD_LIMIT_BYTES))) + around <= JSON_LIMIT_BYTES


def test_what_a_function_raises_is_a_fault(clients, invoker):
    failure = json.dumps({"errorType": "Runtime.ExitError", "errorMessage": "exit status 3"}).encode()
    clients.answer = {"Payload": failure, "FunctionError": "Unhandled"}
    with pytest.raises(Lost, match="exit status 3"):
        invoker.invoke(b"x", 5.0)


@pytest.mark.parametrize("content", [b"null", b"{}", b'{"frame": 1}', b'{"frame": "\xc3\xa4"}', b"<html>"])
def test_an_answer_that_holds_no_frame_is_lost(clients, invoker, content):
    clients.answer = {"Payload": content}
    with pytest.raises(Lost, match="is no frame: is it another function"):
        invoker.invoke(b"x", 5.0)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ClientError({"Error": {"Code": "TooManyRequestsException"}}, "Invoke"), Throttled),
        (ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "Invoke"), Unavailable),
        (ReadTimeoutError(endpoint_url="http://127.0.0.1:1"), Lost),
    ],
)
def test_an_error_of_boto3_becomes_a_fault_without_the_original_error(clients, invoker, error, fault):
    clients.answer = error
    with pytest.raises(fault) as caught:
        invoker.invoke(b"x", 5.0)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_once_closed_it_invokes_nothing_more(clients, invoker):
    clients.answer = echo
    invoker.invoke(b"x", 5.0)
    invoker.close()
    invoker.close()
    assert clients[0].closed
    with pytest.raises(Lost, match="closed"):
        invoker.invoke(b"x", 5.0)
