import threading

import pytest

from dorylus.runtime.fence import LEASE_S, Lease, Renewal


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ended():
    return []


@pytest.fixture
def lease(clock, ended):
    return Lease(clock, lambda: ended.append(clock.now_s))


def test_a_server_with_a_renewed_lease_lives(lease, clock, ended):
    for _ in range(5):
        clock.now_s += LEASE_S
        lease.check()
        lease.renew()
    assert ended == []


def test_a_server_whose_lease_expires_ends_its_process(lease, clock, ended):
    clock.now_s += LEASE_S + 0.1
    lease.check()
    assert ended == [clock.now_s]


def test_a_driver_renews_until_it_is_closed():
    renewed = threading.Semaphore(0)
    renewal = Renewal(renewed.release, every_s=0.0)
    for _ in range(3):
        assert renewed.acquire(timeout=30)
    renewal.close()
    assert "dorylus-renewal" not in [thread.name for thread in threading.enumerate()]
