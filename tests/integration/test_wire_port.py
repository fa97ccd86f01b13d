"""A port and its clients over loopback."""

import threading
import time

import numpy as np
import pytest

from dorylus.errors import DorylusError
from dorylus.wire import Client, ClientKeys, DataPort, Frame, FrameError, FrameLimits, Refused, RunKeys, WireError, pack
from dorylus.wire.client import MAX_IN_FLIGHT

DEADLINE_S = 20.0
ROWS = np.arange(3 << 20, dtype=np.float32).reshape(-1, 64)  # 12 MiB: many pieces


class Time:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self):
        return self.now


class Service:
    """Answers for tests, as the header requests."""

    def __init__(self):
        self.kept = []

    def __call__(self, frame):
        match frame.header.get("ask"):
            case "echo":
                return frame
            case "rows":
                return Frame({}, {"rows.0": ROWS[: frame.header["num_rows"]]})
            case "packed":
                return pack({"packed": True}, {"rows.0": ROWS[:3]})
            case "keep":
                self.kept.append(frame.arrays["x"])
                return Frame({}, {})
            case "refuse":
                raise Refused("no such task: it has been done by another.")
            case "fail":
                raise ZeroDivisionError("oh")
            case "unsendable":
                return Frame({}, {"x": np.array([None])})
            case "nothing":
                return None
            case "empty":
                return []
            case "odd":
                raise Refused("\ud800 is no text")
            case "big":
                return [bytes(2000)]
        return Frame({"hello": True}, {})


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def keys(clock):
    return RunKeys.fresh(clock)


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def port(keys, service):
    with DataPort(keys, service) as port:
        yield port


@pytest.fixture
def client(port, keys):
    with Client(port.address, keys.client(60)) as client:
        yield client


def ask(client, ask="hello", arrays=None, **header):
    return client.request({"ask": ask, **header}, arrays or {}, DEADLINE_S)


def test_a_request_is_answered(client, port):
    assert ask(client).header == {"hello": True}
    assert port.counts.served == 1


def test_arrays_of_any_size_go_there_and_back(client):
    arrays = {"big": ROWS, "scalar": np.array(2.5), "none": np.zeros((0, 3), np.int8), "odd": np.ones(70_001, np.uint8)}
    back = ask(client, "echo", arrays).arrays
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


def test_received_arrays_are_aligned(client):
    for array in ask(client, "echo", {"x": np.ones(3), "y": np.ones((300, 300))}).arrays.values():
        assert array.ctypes.data % 64 == 0


def test_an_answer_may_be_packed_already(client):
    frame = ask(client, "packed")
    np.testing.assert_array_equal(frame.arrays["rows.0"], ROWS[:3])


def test_several_requests_may_be_under_way_and_be_received_in_any_order(client):
    numbers = [client.send({"ask": "rows", "num_rows": count}, {}, DEADLINE_S) for count in (5000, 1, 70)]
    for number, count in reversed(list(zip(numbers, (5000, 1, 70), strict=True))):
        np.testing.assert_array_equal(client.receive(number, DEADLINE_S).arrays["rows.0"], ROWS[:count])


def test_what_is_kept_of_an_answer_is_not_overwritten(client):
    kept = [ask(client, "echo", {"x": np.full(100_000, number)}).arrays["x"] for number in range(12)]
    assert [array[0] for array in kept] == [array[-1] for array in kept] == list(range(12))


def test_what_is_kept_of_a_request_is_not_overwritten(client, service):
    for number in range(12):
        ask(client, "keep", {"x": np.full(100_000, number)})
    assert [array[-1] for array in service.kept] == list(range(12))


def test_answers_that_are_never_received_do_not_pile_up(client):
    first, *_ = [client.send({}, {}, DEADLINE_S) for _ in range(MAX_IN_FLIGHT + 1)]
    last = client.send({}, {}, DEADLINE_S)
    client.receive(last, DEADLINE_S)
    with pytest.raises(WireError, match="not in flight"):
        client.receive(first, DEADLINE_S)
    with pytest.raises(WireError, match="not in flight"):
        client.receive(last, DEADLINE_S)


def test_the_reason_of_a_refusal_reaches_the_client(client, port):
    with pytest.raises(Refused, match="no such task: it has been done by another") as caught:
        ask(client, "refuse")
    assert caught.value.kind == "refused"
    assert port.counts.refused == 1


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("fail", "ZeroDivisionError: oh"),
        ("unsendable", "dtype object"),
        ("nothing", "TypeError"),
        ("empty", "of 0 bytes"),
    ],
)
def test_an_answer_that_fails_is_counted_and_the_port_goes_on(client, port, failure, message):
    with pytest.raises(Refused, match=message) as caught:
        ask(client, failure)
    assert caught.value.kind == "failed"
    assert ask(client).header == {"hello": True}
    assert (port.counts.failed, port.counts.served) == (1, 1)


def test_a_reason_that_is_no_text_still_travels(client):
    with pytest.raises(Refused, match="is no text"):
        ask(client, "odd")


def test_an_answer_longer_than_a_frame_may_be_fails(keys, service):
    with DataPort(keys, service, limits=FrameLimits(max_frame_bytes=1000)) as port, Client(
        port.address, keys.client(60)
    ) as client, pytest.raises(Refused, match="at most 1000"):  # fmt: skip
        ask(client, "big")


def test_a_request_beyond_the_limits_is_not_sent(port, keys):
    with Client(port.address, keys.client(60), limits=FrameLimits(max_frame_bytes=1000)) as client:
        with pytest.raises(FrameError, match="at most 1000"):
            ask(client, "echo", {"x": np.ones(1000)})
        with pytest.raises(FrameError, match="at most 1000"):
            ask(client, "rows", num_rows=100)
        assert ask(client).header == {"hello": True}


def test_a_request_longer_than_the_port_accepts_is_refused_and_counted(keys, service):
    with DataPort(keys, service, limits=FrameLimits(max_frame_bytes=1000)) as port, Client(
        port.address, keys.client(60)
    ) as client:  # fmt: skip
        with pytest.raises(Refused, match="at most 1000 are accepted") as caught:
            ask(client, "echo", {"x": np.ones(1000)})
        assert caught.value.kind == "oversize"
        assert port.counts.oversize == 1
        assert ask(client).header == {"hello": True}


def test_a_key_that_expires_is_cut_off_on_its_open_connection(client, port, clock):
    ask(client, "rows", num_rows=1)
    clock.now += 61
    with pytest.raises(Refused, match="the key has expired") as caught:
        ask(client, "rows", num_rows=1)
    assert caught.value.kind == "expired"
    assert (port.counts.expired, port.counts.served) == (1, 1)


def test_a_key_that_is_revoked_is_cut_off_on_its_open_connection(port, keys):
    held = keys.client(60)
    with Client(port.address, held) as client:
        ask(client)
        keys.revoke(held.public)
        with pytest.raises(Refused, match="expired or was revoked"):
            ask(client)


@pytest.mark.parametrize("expired", [True, False], ids=["expired", "of another run"])
def test_a_client_with_a_refused_key_gets_the_error_at_once(port, keys, clock, expired):
    held = keys.client(60) if expired else RunKeys.fresh().client(60)
    clock.now += 61
    held = ClientKeys(held.public, held.secret, keys.public, held.expires_at)
    begun = time.monotonic()
    with Client(port.address, held) as client, pytest.raises(WireError, match="refused our key"):
        ask(client)
    assert time.monotonic() - begun < DEADLINE_S / 2


def test_a_client_does_not_talk_to_a_server_with_another_key(port, keys, service):
    held = keys.client(60)
    imposter = ClientKeys(held.public, held.secret, RunKeys.fresh().public, held.expires_at)
    with Client(port.address, imposter) as client, pytest.raises(WireError, match="not the one our key belongs to"):
        client.request({"ask": "keep"}, {"x": np.ones(3)}, 0.3)
    assert not service.kept


def test_the_error_names_the_port_that_does_not_answer_in_time(keys):
    go = threading.Event()

    def slow(frame):
        go.wait(DEADLINE_S)
        return Frame({}, {})

    with DataPort(keys, slow) as port, Client(port.address, keys.client(60)) as client:
        number = client.send({}, {}, DEADLINE_S)
        with pytest.raises(WireError, match=f"{port.address} did not answer request 1 within 0.05 s"):
            client.receive(number, 0.05)
        go.set()
        assert client.request({}, {}, DEADLINE_S).header == {}  # the late answer to the first is dropped


def test_an_answer_that_takes_long_is_counted(keys, monkeypatch):
    monkeypatch.setattr("dorylus.wire.port._SLOW_S", -1.0)
    with DataPort(keys, lambda frame: frame) as port, Client(port.address, keys.client(60)) as client:
        ask(client)
        ask(client)
    assert port.counts.slow == 2


def test_a_port_without_a_server_is_an_error_after_the_deadline(keys, port):
    port.close()
    message = f"{port.address} could not be reached within 0.1 s: no server listens"
    with Client(port.address, keys.client(60)) as client, pytest.raises(WireError, match=message):
        client.request({}, {}, 0.1)


def test_a_client_finds_a_port_that_was_closed_and_opened_again(keys, service):
    first = DataPort(keys, service)
    number = int(first.address.rpartition(":")[2])
    with Client(first.address, keys.client(60)) as client:
        ask(client)
        first.close()
        with DataPort(keys, service, port=number) as second:
            try:
                ask(client)
            except WireError:  # sent to the old port and reported lost: retry
                ask(client)
            assert second.counts.served == 1


def test_requests_under_way_are_reported_lost_when_the_port_closes(keys):
    started, go = threading.Event(), threading.Event()

    def stuck(frame):
        started.set()
        go.wait(DEADLINE_S)
        raise Refused("closing")

    port = DataPort(keys, stuck)
    with Client(port.address, keys.client(60)) as client:
        number = client.send({}, {}, DEADLINE_S)
        assert started.wait(DEADLINE_S)
        with pytest.raises(WireError, match=r"did not stop within 0.05 s: an answer is still running"):
            port.close(timeout_s=0.05)
        go.set()
        port.close()
        with pytest.raises(WireError, match=r"was lost before the answer arrived|closing"):
            client.receive(number, DEADLINE_S)


def test_many_clients_are_served_at_once(port, keys):
    def work(results):
        with Client(port.address, keys.client(60)) as client:
            for count in (1, 3000, 70):
                results.append(ask(client, "rows", num_rows=count).arrays["rows.0"].shape[0])

    results: list[int] = []
    threads = [threading.Thread(target=work, args=(results,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(results) == sorted([1, 3000, 70] * 8)


def test_closing_twice_is_fine_and_leaves_no_thread(keys, service):
    port = DataPort(keys, service)
    client = Client(port.address, keys.client(60))
    ask(client)
    for _ in range(2):
        client.close()
        port.close()
    assert not [thread.name for thread in threading.enumerate() if port.address in thread.name]


def test_a_port_in_use_is_an_error_that_names_it(keys, service, port):
    number = int(port.address.rpartition(":")[2])
    with pytest.raises(WireError, match=f"cannot listen on 127.0.0.1:{number}: Address already in use"):
        DataPort(keys, service, port=number)


def test_an_invalid_address_is_an_error_with_the_right_form(keys):
    with pytest.raises(DorylusError, match="An address looks like"):
        Client("rows", keys.client(60))


def test_a_port_may_be_dialled_by_another_name(keys, service):
    with DataPort(keys, service, advertise="localhost") as port, Client(port.address, keys.client(60)) as client:
        assert port.address.startswith("tcp://localhost:")
        assert ask(client).header == {"hello": True}
