import pytest

from dorylus.cost import Meter, Phase, PriceBook, Rates, Role, make_bill
from dorylus.report.closing_table import bill_rows
from dorylus.report.summary import Summary


def test_a_run_without_a_bill_has_no_row():
    assert bill_rows(Summary()) == []
    assert bill_rows(Summary(result={})) == []


def bill_of(**config):
    meter = Meter()
    meter.add_servers(Role.GRAPH, 7200, phase=Phase.TRAINING)
    meter.add_servers(Role.GRAPH, 3600, phase=Phase.SETUP)
    bill = make_bill(meter.snapshot(), Rates.of(PriceBook.load(), "c5.large"))
    [(name, text)] = bill_rows(Summary(config=config, result={"bill": bill.to_dict(), "pool": {}}))
    assert name == "bill"
    return text.split("\n")


def test_the_bill_of_one_machine_is_a_line():
    assert bill_of() == ["$0.26 ($0.17 counted as the paper does)"]


@pytest.mark.parametrize("config", [{"cluster": "ray"}, {"pool": "http"}])
def test_of_a_cluster_or_functions_the_total_comes_first_and_then_every_line(config):
    assert bill_of(**config) == [
        "$0.26 ($0.17 counted as the paper does)",
        "graph servers, c5.large, training: 2 h at $0.085/h = $0.17",
        "graph servers, c5.large, set-up: 1 h at $0.085/h = $0.08",
    ]
