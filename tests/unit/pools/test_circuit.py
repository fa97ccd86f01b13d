from math import inf

import pytest

from dorylus.pools.pacing import Circuit, Policy
from dorylus.pools.pool import Lost, Unavailable

LOST = Lost("gone")


@pytest.fixture
def circuit():
    return Circuit(Policy(down_after_s=60.0, at_most_s=60.0, refused_after_s=5.0))


def test_without_failures_nothing_is_down(circuit):
    assert circuit.opens_s == inf
    circuit.succeeded(100.0)
    assert circuit.opens_s == inf
    assert circuit.trouble_s(500.0) == 0.0


def test_time_counts_from_the_launch_of_the_first_attempt_that_failed(circuit):
    circuit.failed(30.0, 31.0, LOST)
    circuit.failed(10.0, 33.0, LOST)
    circuit.failed(35.0, 36.0, LOST)
    assert circuit.opens_s == 70.0
    assert circuit.trouble_s(45.0) == 35.0


def test_an_attempt_that_fails_though_others_succeeded_since_its_launch_counts_from_their_success(circuit):
    circuit.succeeded(20.0)
    circuit.failed(10.0, 21.0, LOST)
    assert circuit.opens_s == 80.0


def test_a_success_ends_the_trouble(circuit):
    circuit.failed(10.0, 11.0, LOST)
    circuit.succeeded(50.0)
    assert circuit.opens_s == inf
    circuit.failed(60.0, 61.0, LOST)
    assert circuit.opens_s == 120.0


def test_a_service_that_never_answered_is_given_less_time_once_it_refuses(circuit):
    circuit.failed(10.0, 40.0, TimeoutError())
    circuit.failed(40.0, 41.0, Unavailable("no credentials"))
    assert circuit.opens_s == 46.0


def test_a_service_that_has_answered_before_is_given_the_full_time(circuit):
    circuit.succeeded(1.0)
    circuit.failed(10.0, 11.0, Unavailable("connection refused"))
    assert circuit.opens_s == 70.0


def test_the_last_failure_is_remembered_for_the_error(circuit):
    circuit.failed(10.0, 11.0, LOST)
    refusal = Unavailable("no")
    circuit.failed(11.0, 12.0, refusal)
    assert circuit.last_failure is refusal
    circuit.rest()
    assert circuit.last_failure is None
