import copy
import pickle
import traceback

import pytest

from dorylus.errors import ConfigError, DorylusError
from dorylus.wire.keys import ClientKeys, RunKeys


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def keys(clock):
    return RunKeys.fresh(clock)


def test_a_client_is_allowed_until_its_keys_end(keys, clock):
    client = keys.client(lifetime_s=60)
    assert client.expires_at == 1060
    assert client.server_public == keys.public
    clock.now = 1059.9
    assert keys.is_allowed(client.public)
    clock.now = 1060
    assert not keys.is_allowed(client.public)


def test_every_key_pair_is_new(keys):
    clients = [keys.client(1) for _ in range(5)]
    assert len({key for client in clients for key in (client.public, client.secret)}) == 10
    assert RunKeys.fresh().public != keys.public


def test_an_unknown_client_is_not_allowed(keys):
    assert not keys.is_allowed(RunKeys.fresh().client(60).public)
    assert not keys.is_allowed("")


def test_a_revoked_client_is_not_allowed(keys):
    client = keys.client(60)
    keys.revoke(client.public)
    keys.revoke(client.public)
    assert not keys.is_allowed(client.public)


def test_a_key_of_another_process_can_be_allowed_and_prolonged(keys, clock):
    public = RunKeys.fresh().client(60).public
    keys.allow(public, expires_at=1010)
    keys.allow(public, expires_at=1100)
    clock.now = 1050
    keys.client(1)
    assert keys.is_allowed(public)


def test_ended_keys_are_forgotten(keys, clock):
    for _ in range(50):
        clock.now += 10
        keys.client(lifetime_s=15)
    assert repr(keys) == "RunKeys(2 clients)"


@pytest.mark.parametrize("lifetime_s", [0, -1, float("inf"), float("nan")])
def test_keys_live_for_a_finite_time(keys, lifetime_s):
    with pytest.raises(ConfigError, match="is finite and above 0"):
        keys.client(lifetime_s)


def test_a_header_carries_a_clients_keys(keys):
    client = keys.client(60)
    assert ClientKeys.from_header(client.to_header()) == client


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"secret": "short"}, "secret"),
        ({"secret": "x" * 39 + '"'}, "secret"),
        ({"secret": None, "public": 7}, "public and secret"),
        ({"server_public": b"x" * 40}, "server_public"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"expires_at": True}, "expires_at"),
        ({"expires_at": float("nan")}, "expires_at"),
        ({"expires_at": 10**400}, "expires_at"),
    ],
)
def test_a_header_with_bad_keys_is_refused_without_printing_them(keys, change, fields):
    header = keys.client(60).to_header() | change
    with pytest.raises(DorylusError, match=f"without a good {fields}") as caught:
        ClientKeys.from_header(header)
    text = "".join(traceback.format_exception(caught.value))
    assert not any(value in text for value in header.values() if isinstance(value, str) and len(value) == 40)


@pytest.mark.parametrize("header", [None, [], "keys", {}])
def test_what_is_no_header_of_keys_is_refused(header):
    with pytest.raises(DorylusError, match="public and secret and server_public and expires_at"):
        ClientKeys.from_header(header)


def test_no_key_is_ever_printed(keys):
    client = keys.client(60)
    printed = f"{keys} {keys!r} {client} {client!r} {[client]} {vars(keys).keys()}"
    secrets = [client.public, client.secret, client.server_public, keys.public, keys.secret_for_port()]
    assert not any(secret in printed for secret in secrets)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_the_keys_of_a_run_stay_where_they_are(keys, copied):
    with pytest.raises(TypeError, match="hand out client keys instead"):
        copied(keys)
