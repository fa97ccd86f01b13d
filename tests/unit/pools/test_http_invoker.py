"""What needs no server: addresses, and what statuses and headers mean."""

import socket
import time
from email.utils import formatdate

import pytest

from dorylus.errors import ConfigError
from dorylus.pools.http import HttpInvoker, fault_of, fault_of_error, seconds_of
from dorylus.pools.pool import Lost, Unavailable


@pytest.mark.parametrize("url", ["ftp://host/", "host:80", "http://", ""])
def test_a_url_without_http_or_a_host_is_refused(url):
    with pytest.raises(ConfigError, match="use http://host or https://host"):
        HttpInvoker(url)


@pytest.mark.parametrize("url", ["https://me:s3cret@host/", "https://host/run?code=s3cret"])
def test_a_url_with_a_secret_is_refused_without_printing_it(url):
    with pytest.raises(ConfigError, match="DORYLUS_FUNCTION_TOKEN") as caught:
        HttpInvoker(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://host:99999", "http://host:abc", "http://[::1/", "http://host/ä", "http://h/a b"]
)
def test_a_url_that_cannot_be_dialled_is_refused_with_a_message(url):
    with pytest.raises(ConfigError, match="use http://host or https://host"):
        HttpInvoker(url)


def test_the_repr_of_an_invoker_holds_no_token(monkeypatch):
    monkeypatch.setenv("ANOTHER_VARIABLE", "s3cret")
    invoker = HttpInvoker("https://host:8443/run", token_variable="ANOTHER_VARIABLE")
    assert repr(invoker) == "HttpInvoker('https://host:8443/run')"


def test_a_token_may_end_with_a_newline_and_a_bad_one_is_not_printed(monkeypatch):
    monkeypatch.setenv("ANOTHER_VARIABLE", "s3cret\n")
    invoker = HttpInvoker("https://host/", token_variable="ANOTHER_VARIABLE")
    assert invoker._headers["Authorization"] == "Bearer s3cret"
    monkeypatch.setenv("ANOTHER_VARIABLE", "s3cret\nX-Evil: 1")
    with pytest.raises(ConfigError, match="ANOTHER_VARIABLE holds is no token") as caught:
        HttpInvoker("https://host/", token_variable="ANOTHER_VARIABLE")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("header", "seconds"), [(None, None), ("3", 3.0), ("-1", 0.0), ("0.5", 0.5), ("soon", None)])
def test_retry_after_is_understood(header, seconds):
    assert seconds_of(header) == seconds


def test_retry_after_may_be_a_date(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    assert seconds_of(formatdate(1_000_030, usegmt=True)) == 30.0
    assert seconds_of(formatdate(999_000, usegmt=True)) == 0.0


@pytest.mark.parametrize("status", [301, 400, 405, 410, 413])
def test_a_status_that_a_retry_cannot_change_is_not_tried_again(status):
    assert isinstance(fault_of(status, None, "http://host"), Unavailable)


@pytest.mark.parametrize("error", [ConnectionRefusedError(), socket.gaierror(socket.EAI_NONAME, "not known")])
def test_an_address_without_a_server_is_unavailable_and_the_error_names_the_cure(error):
    found = fault_of_error(error, "http://host")
    assert isinstance(found, Unavailable)
    assert str(found).startswith("nothing answers at http://host")
    assert str(found).endswith(": start the functions there, or give the right function_url.")


@pytest.mark.parametrize("error", [ConnectionResetError("cut"), TimeoutError("late"), BrokenPipeError("cut")])
def test_a_request_that_was_accepted_and_not_answered_is_lost(error):
    assert isinstance(fault_of_error(error, "http://host"), Lost)
