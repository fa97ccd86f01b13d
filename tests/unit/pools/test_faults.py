import pytest

from dorylus.errors import TrainingError
from dorylus.pools.pool import Exhausted, Lost, PoolFault, Throttled, Unavailable


@pytest.mark.parametrize("fault", [Throttled(), Lost("a"), Unavailable("b"), Exhausted("c")])
def test_a_fault_of_a_pool_stops_a_run_like_any_training_error(fault):
    assert isinstance(fault, PoolFault)
    assert isinstance(fault, TrainingError)
    assert fault.exit_code == 1


def test_throttling_may_carry_a_retry_delay():
    assert Throttled().retry_after_s is None
    assert Throttled(2.5).retry_after_s == 2.5
    assert str(Throttled(2.5, "429 of function x")) == "429 of function x"
    assert "no more calls for now" in str(Throttled())
