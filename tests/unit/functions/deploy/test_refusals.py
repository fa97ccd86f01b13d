import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ProxyConnectionError

from dorylus.functions.deploy.access import code_of, cure, error_text, is_about_credentials, status_of

SECRET = "x-amz-security-token:IQoJb3JpZ2luX2VjEHoaDmV1LWNlbnRyYWwtMSJ"


def refusal(code, message, status=403):
    return ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}, "X"
    )


@pytest.mark.parametrize("code", ["SignatureDoesNotMatch", "InvalidSignatureException", "ExpiredTokenException"])
def test_what_was_signed_is_never_repeated(code):
    error = refusal(code, f"The canonical string should have been {SECRET}")
    assert error_text(error) == f"{code}."
    assert "credentials" in cure(error)


def test_key_ids_are_left_out_of_other_messages():
    error = refusal("AccessDenied", "User AKIAABCDEFGHIJKLMNOP is not authorised")
    assert error_text(error) == "AccessDenied: User ... is not authorised."
    assert "permissions" in cure(error)


def test_a_proxys_address_is_left_out_as_it_may_hold_a_password():
    assert error_text(ProxyConnectionError(proxy_url="http://me:secret@proxy")) == "ProxyConnectionError."


def test_a_message_of_botocore_is_kept():
    error = EndpointConnectionError(endpoint_url="http://127.0.0.1:1/")
    assert "http://127.0.0.1:1/" in error_text(error)
    assert "stand-in" in cure(error)


def test_codes_and_statuses_are_found_where_there_are_any():
    error = refusal("Some", "", 500)
    assert (code_of(error), status_of(error), error_text(error)) == ("Some", 500, "Some.")
    assert (code_of(ValueError()), status_of(ValueError())) == ("", 0)


def test_having_no_credentials_is_about_credentials():
    assert is_about_credentials(NoCredentialsError())
    assert not is_about_credentials(refusal("AccessDenied", ""))


def test_long_messages_are_cut():
    assert len(error_text(refusal("Some", "x" * 5000))) < 400
