import pytest

from dorylus.report import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00412, "4.12 ms"),
        (0.5, "500 ms"),
        (2.3456, "2.35 s"),
        (59.99, "60 s"),
        (60.0, "1 min 00 s"),
        (185.2, "3 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7620.0, "2 h 07 min"),
        (float("inf"), "–"),
    ],
)
def test_a_duration_is_printed_in_a_suitable_unit(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 bytes"), (2048, "2 KiB"), (5 * 1024**2, "5.0 MiB"), (3 * 1024**3, "3.00 GiB"), (2**50, "1048576.00 GiB")],
)
def test_a_size_is_counted_in_powers_of_1024(value, text):
    assert units.size(value) == text


@pytest.mark.parametrize(("share", "text"), [(0.8134, "81.3 %"), (None, "–"), (float("nan"), "–"), (0.0, "0.0 %")])
def test_a_share_is_a_percentage_or_a_dash(share, text):
    assert units.percent(share) == text


@pytest.mark.parametrize(("value", "text"), [(1.23456, "1.235"), (None, "–"), (float("nan"), "–")])
def test_a_number_has_a_few_digits_or_is_a_dash(value, text):
    assert units.number(value) == text
