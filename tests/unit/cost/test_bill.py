import json
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.cost import Bill, FunctionUse, Meter, Phase, PriceBook, Rates, Role, Usage, make_bill, value
from dorylus.cost.money import QUANTUM
from dorylus.errors import ConfigError, DataError

BOOK = PriceBook.load()
counts = st.integers(0, 10**15)
uses = st.builds(FunctionUse, *(counts for _ in range(7)))
usages = st.builds(
    Usage,
    st.dictionaries(st.tuples(st.sampled_from(Role), st.sampled_from(Phase)), counts),
    st.dictionaries(st.sampled_from(Phase), uses),
    st.dictionaries(st.sampled_from(sorted(BOOK.transfers)), counts),
)
rates = st.builds(
    lambda graph, parameter, function, **more: Rates.of(BOOK, graph, parameter=parameter, function=function, **more),
    st.sampled_from(sorted(BOOK.instances)),
    st.sampled_from([None, "c5.xlarge"]),
    st.sampled_from(sorted(BOOK.functions)),
    spot=st.booleans(),
    free_tier=st.booleans(),
    month_gb_s=st.integers(0, 10**11),
    month_requests=st.integers(0, 10**7),
)


def a_run(service="lambda-x86"):
    """Two graph servers and one parameter server for an hour, half an hour of set-up, calls and traffic."""
    meter = Meter(BOOK.function(service).rounding)
    for role, count in ((Role.GRAPH, 2), (Role.PARAMETER, 1)):
        meter.add_servers(role, 1800, count=count, phase=Phase.SETUP)
        meter.add_servers(role, 3600, count=count, phase=Phase.TRAINING)
        meter.add_servers(role, 360, count=count, phase=Phase.EVALUATION)
    for index in range(1000):
        meter.add_call(500, 1024, vcpus=1, cold_ms=500 if index < 100 else 0, phase=Phase.TRAINING)
    meter.add_bytes("cross-zone", 10 * 2**30)
    meter.add_bytes("same-zone", 2**30)
    return meter.snapshot()


@given(usages, rates)
def test_lines_sum_to_the_total_exactly_in_any_order(usage, prices):
    bill = make_bill(usage, prices)
    for basis in ("paper", "full"):
        amounts = [line.usd for line in bill.lines(basis)]
        with localcontext(prec=100):
            assert sum(amounts) == sum(reversed(amounts)) == bill.total(basis)
    for line in bill.lines():
        with localcontext(prec=100):
            assert line.usd == (line.quantity * line.unit_price).quantize(QUANTUM)


@given(usages, rates)
def test_the_papers_basis_is_a_part_of_the_full_one(usage, prices):
    bill = make_bill(usage, prices)
    assert set(bill.lines("paper")) <= set(bill.lines("full"))
    assert 0 <= bill.total("paper") <= bill.total("full")


@given(usages, rates)
def test_a_bill_comes_back_from_json_as_it_was(usage, prices):
    bill = make_bill(usage, prices)
    assert Bill.from_dict(json.loads(json.dumps(bill.to_dict()))) == bill


def test_a_users_decimal_context_changes_nothing():
    usage = Usage({(Role.GRAPH, Phase.TRAINING): 1_005_400_000_001}, {Phase.TRAINING: FunctionUse(1234, 56_789_012)})
    prices = Rates.of(BOOK, "c5.2xlarge", function="lambda-x86", spot=True)
    bill = make_bill(usage, prices)
    with localcontext(prec=3):
        again = make_bill(usage, prices)
        total = again.total()
    assert again == bill
    assert total == bill.total()


def test_each_basis_counts_its_own_lines():
    bill = make_bill(a_run(), Rates.of(BOOK, "c5.2xlarge", parameter="c5.xlarge", function="lambda-x86"))
    assert [(line.what, float(line.quantity), line.unit, line.on_paper) for line in bill.lines()] == [
        ("graph servers, c5.2xlarge, training", 2, "h", True),
        ("graph servers, c5.2xlarge, set-up", 1, "h", False),
        ("graph servers, c5.2xlarge, evaluation", 0.2, "h", False),
        ("parameter servers, c5.xlarge, training", 1, "h", False),
        ("parameter servers, c5.xlarge, set-up", 0.5, "h", False),
        ("parameter servers, c5.xlarge, evaluation", 0.1, "h", False),
        ("functions, lambda-x86, training", 500, "GB-s", True),
        ("requests, lambda-x86, training", 0.001, "M", True),
        ("functions, lambda-x86, 100 cold starts", 50, "GB-s", False),
        ("traffic, cross-zone", 10, "GB", False),
        ("traffic, same-zone", 1, "GB", False),
    ]
    assert bill.total("paper") == Decimal("0.68") + 500 * Decimal("0.0000166667") + Decimal("0.0002")
    servers, cold_starts, traffic = Decimal("0.408") + Decimal("0.272"), Decimal("0.000833335"), Decimal("0.2")
    assert bill.total() - bill.total("paper") == servers + cold_starts + traffic
    assert (bill.total_usd, bill.paper_usd) == (float(bill.total()), float(bill.total("paper")))


def test_every_line_names_the_source_of_its_price():
    lines = make_bill(a_run(), Rates.of(BOOK, "c5.2xlarge", function="lambda-x86")).lines()
    assert all(line.source and line.date for line in lines)


def test_a_service_may_charge_for_vcpus_too():
    bill = make_bill(a_run("cloud-run"), Rates.of(BOOK, "c5.2xlarge", function="cloud-run"))
    functions = {(line.what, line.unit): line.usd for line in bill.lines() if line.what.startswith("functions")}
    assert functions == {
        ("functions, cloud-run, training", "GB-s"): 500 * Decimal("0.0000025"),
        ("functions, cloud-run, training", "vCPU-s"): 500 * Decimal("0.000024"),
        ("functions, cloud-run, 100 cold starts", "GB-s"): 50 * Decimal("0.0000025"),
        ("functions, cloud-run, 100 cold starts", "vCPU-s"): 50 * Decimal("0.000024"),
    }


def test_cold_starts_cost_nothing_where_the_service_does_not_bill_them():
    book = BOOK.historic("dorylus-2021")
    usage = Usage(functions={Phase.TRAINING: FunctionUse(requests=1, mb_ms=1024, cold_starts=1, cold_mb_ms=10**6)})
    bill = make_bill(usage, Rates.of(book, "c5.2xlarge", function="lambda-x86"))
    assert not [line for line in bill.lines() if "cold" in line.what]


def test_parameter_servers_are_of_the_graph_servers_type_unless_named():
    bill = make_bill(a_run(), Rates.of(BOOK, "c5.2xlarge", function="lambda-x86"))
    assert "parameter servers, c5.2xlarge, training" in [line.what for line in bill.lines()]


def test_spot_servers_cost_their_factor():
    usage = Usage({(Role.GRAPH, Phase.TRAINING): 3600 * 10**9})
    bill = make_bill(usage, Rates.of(BOOK, "c5.2xlarge", spot=True))
    assert bill.total() == Decimal("0.34") * Decimal("0.458")
    assert bill.lines()[0].what == "graph servers, c5.2xlarge (spot), training"


def test_spot_without_a_factor_is_refused():
    with pytest.raises(ConfigError, match=r"c5\.2xlarge has no spot factor"):
        Rates.of(BOOK.historic("dorylus-2021"), "c5.2xlarge", spot=True)


def test_calls_without_a_priced_service_are_refused():
    with pytest.raises(ConfigError, match="functions were called 1,000 times, but no service is priced"):
        make_bill(a_run(), Rates.of(BOOK, "c5.2xlarge"))


def test_traffic_by_an_unknown_path_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'cross-zone'"):
        make_bill(Usage(moved_bytes={"cross-zon": 1}), Rates.of(BOOK, "c5.2xlarge"))


def test_an_unknown_basis_is_refused():
    with pytest.raises(ConfigError, match=r"unknown basis 'papers'.*Did you mean 'paper'"):
        Bill().total("papers")


def test_what_an_account_used_before_cannot_be_negative():
    with pytest.raises(ConfigError, match="cannot be negative"):
        Rates.of(BOOK, "c5.2xlarge", month_gb_s=-1)


def test_nothing_used_costs_nothing():
    bill = make_bill(Usage(), Rates.of(BOOK, "c5.2xlarge"))
    assert (bill.lines(), bill.total(), bill.rows()) == ((), 0, [("total", "", "", "$0")])


def test_rows_are_formatted_for_people():
    usage = Usage({(Role.GRAPH, Phase.TRAINING): 1000 * 10**9}, {Phase.TRAINING: FunctionUse(5, 1024 * 7)})
    rows = make_bill(usage, Rates.of(BOOK, "c5n.2xlarge", function="lambda-x86")).rows()
    assert rows == [
        ("graph servers, c5n.2xlarge, training", "0.2778 h", "$0.432/h", "$0.12"),
        ("functions, lambda-x86, training", "0.007 GB-s", "$0.0000166667/GB-s", "$0.00000012"),
        ("requests, lambda-x86, training", "0.000005 M", "$0.20/M", "$0.0000010"),
        ("total", "", "", "$0.12"),
    ]


def test_value_is_one_over_time_x_cost():
    assert value(853.4, 2.67) / value(2092.7, 3.01) == pytest.approx(2.76, abs=0.01)
    assert value(853.4, 2.67) / value(1039.2, 10.60) == pytest.approx(4.83, abs=0.01)
    bill = make_bill(Usage({(Role.GRAPH, Phase.TRAINING): 3600 * 10**9}), Rates.of(BOOK, "c5.2xlarge"))
    assert bill.value(3600) == pytest.approx(1 / (3600 * 0.34))
    with pytest.raises(ConfigError, match="both must be positive"):
        value(0, 1)


@pytest.mark.parametrize("damaged", [{}, {"lines": [{}]}, {"lines": 3}, {"lines": [{"quantity": "x"}]}])
def test_a_damaged_bill_is_refused(damaged):
    with pytest.raises(DataError, match="a bill cannot be read"):
        Bill.from_dict(damaged)
