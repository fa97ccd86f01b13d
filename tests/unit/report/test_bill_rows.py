from dorylus.cost import Meter, Phase, PriceBook, Rates, Role, make_bill
from dorylus.report.closing_table import bill_rows
from dorylus.report.summary import Summary


def test_a_run_without_a_bill_has_no_row():
    assert bill_rows(Summary()) == []
    assert bill_rows(Summary(result={})) == []


def test_the_total_comes_first_and_then_every_line():
    meter = Meter()
    meter.add_servers(Role.GRAPH, 7200, phase=Phase.TRAINING)
    meter.add_servers(Role.GRAPH, 3600, phase=Phase.SETUP)
    bill = make_bill(meter.snapshot(), Rates.of(PriceBook.load(), "c5.large"))
    [(name, text)] = bill_rows(Summary(result={"bill": bill.to_dict()}))
    assert name == "bill"
    assert text.split("\n") == [
        "$0.26 ($0.17 counted as the paper does)",
        "graph servers, c5.large, training: 2 h at $0.085/h = $0.17",
        "graph servers, c5.large, set-up: 1 h at $0.085/h = $0.08",
    ]
