from decimal import Decimal

import pytest

from dorylus.cost import dollars
from dorylus.cost.money import quantity


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        ("0", "$0"),
        ("1234567.891", "$1,234,567.89"),
        ("13.8", "$13.80"),
        ("0.19", "$0.19"),
        ("0.01", "$0.01"),
        ("0.004189", "$0.0042"),
        ("0.00000021", "$0.00000021"),
        ("1e-12", "$0.0000000000010"),
    ],
)
def test_an_amount_is_printed_to_the_cent_or_in_two_digits(usd, text):
    assert dollars(Decimal(usd)) == text


def test_a_float_is_an_amount_too():
    assert dollars(0.1 + 0.2) == "$0.30"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "0"),
        ("0.279277777778", "0.2793"),
        ("12.5", "12.5"),
        ("0.000005", "0.000005"),
        ("999.96", "1000"),
        ("1250000", "1,250,000"),
        ("6000000000.4", "6,000,000,000"),
    ],
)
def test_a_quantity_is_printed_in_four_digits_or_whole(amount, text):
    assert quantity(Decimal(amount)) == text
