import pytest

from dorylus.errors import TrainingError
from dorylus.servers.parameter.updates import GradientLedger


def test_an_epoch_closes_with_its_last_interval():
    ledger = GradientLedger(3)
    assert ledger.finish(2, 0) == []
    assert ledger.finish(0, 0) == []
    assert ledger.finish(1, 0) == [0]


def test_epochs_close_in_order():
    ledger = GradientLedger(2)
    ledger.push(1, 4, step=0)
    assert ledger.finish(0, 5) == []
    assert ledger.finish(1, 5) == []  # epoch 4 is open
    assert ledger.finish(0, 4) == []
    assert ledger.finish(1, 4) == [4, 5]


def test_it_knows_which_epochs_are_open():
    ledger = GradientLedger(2)
    assert ledger.open_epochs() == []
    ledger.enter(0, 3)
    ledger.push(1, 2, step=0)
    assert ledger.open_epochs() == [2, 3]
    for interval in range(2):
        ledger.finish(interval, 2)
    assert ledger.open_epochs() == [3]


def test_a_run_may_begin_at_any_epoch():
    assert GradientLedger(1).finish(0, 17) == [17]


def test_a_second_push_is_refused_and_a_push_of_another_task_is_not():
    ledger = GradientLedger(2)
    ledger.push(0, 0, step=3)
    for others in ((1, 0, 3), (0, 1, 3), (0, 0, 4)):
        ledger.push(*others)
    with pytest.raises(TrainingError, match="interval 0 pushes the gradients of step 3 of epoch 0 a second time"):
        ledger.push(0, 0, step=3)


@pytest.mark.parametrize(
    "late", [lambda led: led.push(0, 1, 0), lambda led: led.finish(0, 1), lambda led: led.enter(0, 1)]
)
@pytest.mark.parametrize("closed", [False, True])
def test_calls_after_the_finish_of_an_interval_are_refused(late, closed):
    ledger = GradientLedger(2)
    ledger.finish(0, 1)
    if closed:
        ledger.finish(1, 1)
    with pytest.raises(TrainingError, match="interval 0 called for epoch 1, which it has finished"):
        late(ledger)


@pytest.mark.parametrize("interval", [-1, 2])
def test_an_interval_that_is_not_of_this_run_is_refused(interval):
    with pytest.raises(TrainingError, match=f"interval {interval} called parameter servers of 2 intervals"):
        GradientLedger(2).enter(interval, 0)
