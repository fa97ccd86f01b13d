import json

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from dorylus.errors import TrainingError
from dorylus.pools.aws_lambda import fault_of_answer, fault_of_error
from dorylus.pools.pool import Lost, PoolFault, Throttled, Unavailable

URL = {"endpoint_url": "http://127.0.0.1:1"}


def refusal(code, status=400, message="AWS's own message", **more):
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": more.pop("headers", {})}
    return ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata, **more}, "Invoke")


def fault(error):
    return fault_of_error(error, "f", 5.0)


@pytest.mark.parametrize("code", ["TooManyRequestsException", "ThrottlingException", "EC2ThrottledException"])
def test_a_service_that_takes_no_more_is_throttling(code):
    assert isinstance(fault(refusal(code, 429)), Throttled)


@pytest.mark.parametrize(
    ("response", "retry_after_s"),
    [
        ({"headers": {"retry-after": "3"}}, 3.0),
        ({"retryAfterSeconds": "2"}, 2.0),
        ({}, None),
        ({"headers": {"retry-after": "soon"}}, None),
    ],
)
def test_the_retry_delay_of_a_throttling_service_is_kept(response, retry_after_s):
    assert fault(refusal("TooManyRequestsException", 429, **response)).retry_after_s == retry_after_s


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(**URL),
        ConnectTimeoutError(**URL),
        ConnectionClosedError(**URL),
        ResponseStreamingError(error="cut off"),
        refusal("ServiceException", 500),
        refusal("ResourceConflictException", 409),
        refusal("ResourceNotReadyException", 502),
        ConnectionResetError("gone"),
    ],
)
def test_an_invocation_without_a_result_is_lost(error):
    assert isinstance(fault(error), Lost)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (refusal("ResourceNotFoundException", 404), "dorylus functions deploy makes it"),
        (refusal("AccessDeniedException", 403), "docs/functions.md"),
        (refusal("UnrecognizedClientException", 403), "Check the credentials"),
        (refusal("ExpiredTokenException", 403), "Check the credentials"),
        (NoCredentialsError(), "Check the credentials"),
        (EndpointConnectionError(**URL), "Check the region and the network"),
        (refusal("InvalidSubnetIDException", 400), "AWS's own message"),
    ],
)
def test_a_service_that_refuses_us_is_unavailable_and_the_error_names_the_cure(error, message):
    found = fault(error)
    assert isinstance(found, Unavailable)
    assert message in str(found)


def test_a_payload_that_is_too_large_is_an_error_of_ours_and_is_not_tried_again():
    found = fault(refusal("RequestTooLargeException", 413))
    assert isinstance(found, TrainingError)
    assert not isinstance(found, PoolFault)


def answer(kind, message="the function's message"):
    return fault_of_answer(json.dumps({"errorType": kind, "errorMessage": message}).encode(), "f")


@pytest.mark.parametrize("kind", ["Runtime.ExitError", "Sandbox.Timedout", "Runtime.OutOfMemory", "MemoryError"])
def test_a_function_that_crashed_or_ran_out_of_time_is_lost(kind):
    found = answer(kind)
    assert isinstance(found, Lost)
    assert kind in str(found)


@pytest.mark.parametrize("kind", ["Runtime.ImportModuleError", "Runtime.HandlerNotFound", "Runtime.InvalidEntrypoint"])
def test_a_function_that_can_never_start_is_unavailable(kind):
    assert isinstance(answer(kind), Unavailable)


def test_an_answer_that_is_too_large_is_not_tried_again():
    assert not isinstance(answer("Function.ResponseSizeTooLarge"), PoolFault)


@pytest.mark.parametrize("content", [b"", b"no json", b"[]", b"null"])
def test_a_failure_without_a_message_is_lost_too(content):
    assert "it said nothing" in str(fault_of_answer(content, "f"))
