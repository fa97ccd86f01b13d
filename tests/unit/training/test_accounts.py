from decimal import Decimal

import pytest

from dorylus.config import RunConfig
from dorylus.cost import Phase
from dorylus.errors import ConfigError, DataError
from dorylus.pools.functions.invocations import Invoked
from dorylus.training.accounts import Accounts


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def accounts(**settings):
    """Accounts of a run on an instance of $0.085 an hour, and the clock they use."""
    clock = Clock()
    return Accounts(RunConfig.of(instance="c5.large", **settings), clock), clock


def epochs(books, clock, number, seconds=3600.0):
    for _ in range(number):
        books.enter(Phase.TRAINING)
        clock.now_s += seconds
        books.enter(Phase.EVALUATION)
        books.end_epoch()


def test_time_is_billed_to_the_phase_it_was_spent_in():
    books, clock = accounts()
    for phase, hours in ((Phase.SETUP, 1), (Phase.TRAINING, 2), (Phase.EVALUATION, 4), (Phase.TRAINING, 8)):
        books.enter(phase)
        clock.now_s += 3600 * hours
    books.enter(Phase.SETUP)
    assert books.bill().total() == 15 * Decimal("0.085")
    assert books.bill().total("paper") == 10 * Decimal("0.085")


def test_every_machine_of_a_run_is_billed_its_start_included():
    books, clock = accounts()
    clock.now_s += 3600
    books.set_machines(3)
    books.enter(Phase.TRAINING)
    clock.now_s += 3600
    books.enter(Phase.EVALUATION)
    assert books.bill().total() == 6 * Decimal("0.085")


def test_the_dollars_of_the_moment_are_those_of_the_bill():
    books, clock = accounts()
    clock.now_s += 7200
    books.enter(Phase.TRAINING)
    assert books.end_epoch() == books.bill().total_usd == pytest.approx(0.17)


def test_a_resumed_run_adds_to_its_earlier_usage():
    before, clock = accounts()
    epochs(before, clock, 2)
    after, clock = accounts()
    clock.now_s += 3600
    after.go_on_from(before.meter.to_dict(), epochs=2)
    after.enter(Phase.TRAINING)
    assert after.bill().total() == 3 * Decimal("0.085")


def test_without_a_budget_any_epoch_is_allowed():
    books, clock = accounts()
    epochs(books, clock, 3)
    assert books.allow_epoch()
    assert not books.has_budget


def test_epochs_are_allowed_while_the_budget_has_room_for_them():
    books, clock = accounts(budget_usd=1.0)
    assert books.allow_epoch()  # nothing is known yet of what an epoch costs
    epochs(books, clock, 1)
    assert books.allow_epoch()
    epochs(books, clock, 10)
    assert not books.allow_epoch()


def test_a_resumed_run_has_only_the_rest_of_the_budget():
    before, clock = accounts(budget_usd=1.0)
    epochs(before, clock, 11)
    after, clock = accounts(budget_usd=1.0)
    after.go_on_from(before.meter.to_dict(), epochs=11)
    assert not after.allow_epoch()


def test_without_a_name_the_instance_nearest_to_this_machine_is_meant():
    assert Accounts(RunConfig.of()).rates.graph.usd_per_hour > 0


def test_an_unknown_instance_or_price_book_is_refused():
    with pytest.raises(ConfigError, match=r"instance='c5.larg' is unknown.*Did you mean 'c5.large'"):
        Accounts(RunConfig.of(instance="c5.larg"))
    with pytest.raises(DataError, match=r"price_book='nowhere\.toml' cannot be read"):
        Accounts(RunConfig.of(price_book="nowhere.toml"))


def test_functions_are_billed_by_their_service_and_cold_starts_apart():
    books, _ = accounts(pool="lambda", function_memory_mb=1024)
    books.enter(Phase.TRAINING)
    books.invoked(Invoked("AV", billed_ms=300.0, cold=True, bytes_in=0, bytes_out=0, init_ms=100.0))
    books.invoked(Invoked("AV", billed_ms=99.2, cold=False, bytes_in=0, bytes_out=0))
    lines = {line.what: line.usd for line in books.bill().lines()}
    gb_s, request = Decimal("0.0000166667"), Decimal("0.0000002")
    assert lines["functions, lambda-x86, training"] == Decimal("0.3") * gb_s
    assert lines["functions, lambda-x86, 1 cold start"] == Decimal("0.1") * gb_s
    assert lines["requests, lambda-x86, training"] == 2 * request
    assert books.bill().total("paper") == Decimal("0.3") * gb_s + 2 * request


def test_functions_of_this_machine_cost_nothing_of_their_own():
    books, _ = accounts(pool="processes")
    books.invoked(Invoked("AV", billed_ms=300.0, cold=False, bytes_in=0, bytes_out=0))
    assert books.bill().total() == 0


def test_closing_is_expected_to_cost_as_much_as_an_evaluation():
    looks = iter([0, 0, 0, 3600, 3600, 3600, 3600, 7200])
    accounts = Accounts(RunConfig.of(instance="c5.large", budget_usd=0.3), clock=lambda: float(next(looks)))
    with accounts.evaluation():  # an hour
        accounts.enter(Phase.EVALUATION)
    assert accounts.allow_epoch()
    accounts.end_epoch()
    assert "closing the run $0.08" in accounts.why_not()


def test_the_running_phase_is_counted_up_to_now_and_not_twice():
    books, clock = accounts()
    books.set_machines(2)
    clock.now_s += 10
    books.enter(Phase.TRAINING)
    clock.now_s += 5
    for _ in range(2):
        assert books.up_to_now()["server_ns"] == {"graph": {"setup": 20 * 10**9, "training": 10 * 10**9}}
    assert books.to_dict()["server_ns"] == {"graph": {"setup": 20 * 10**9}}
    clock.now_s += 5
    books.enter(Phase.EVALUATION)
    assert books.to_dict()["server_ns"] == {"graph": {"setup": 20 * 10**9, "training": 20 * 10**9}}


def test_running_invocations_count_as_average_ones_until_they_end():
    books, _ = accounts(pool="processes", function_service="lambda-x86", function_memory_mb=1000)
    books.enter(Phase.TRAINING)
    books.begun = lambda: 4
    for billed_ms in (10.0, 30.0):
        books.invoked(Invoked("AV", billed_ms, False, 1, 1))
    use = books.up_to_now()["functions"]["training"]
    assert (use["requests"], use["mb_ms"]) == (4, 80_000)
    assert books.to_dict()["functions"]["training"]["requests"] == 2
    for _ in range(2):
        books.invoked(Invoked("AV", 20.0, False, 1, 1))
    assert books.up_to_now()["functions"]["training"] == books.to_dict()["functions"]["training"]
    assert books.to_dict()["functions"]["training"]["mb_ms"] == 80_000


def test_the_set_up_may_have_begun_before_the_accounts_were_opened():
    accounts = Accounts(RunConfig.of(instance="c5.large"), clock=lambda: 100.0, since_s=40.0)
    accounts.enter(Phase.TRAINING)
    assert accounts.to_dict()["server_ns"] == {"graph": {"setup": 60 * 10**9}}
