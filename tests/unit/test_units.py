import pytest

from dorylus import units
from dorylus.errors import ConfigError
from dorylus.units import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("amount", "number"),
    [
        (1, 1),
        (4096, 4096),
        ("4096", 4096),
        ("7B", 7),
        ("4GiB", 4 << 30),
        ("4 gib", 4 << 30),
        (" 800MB ", 800_000_000),
        ("1.5GB", 1_500_000_000),
        ("0.5KiB", 512),
        ("2TiB", 2 << 40),
        ("3kB", 3000),
    ],
)
def test_amounts_are_read_in_the_usual_spellings(amount, number):
    assert parse_bytes(amount) == number


@pytest.mark.parametrize(
    ("amount", "sentence"),
    [
        ("4G", "memory='4G': 'G' is no unit. Use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB."),
        ("4GiBs", "'GiBs' is no unit"),
        ("", "memory='' is no amount"),
        ("GiB", "is no amount: give a number and a unit"),
        ("-4GiB", "is no amount"),
        ("1e9", "is no amount"),
        ("1.5", "a part of a byte. Name a unit, like '1.5GiB'"),
        ("0GiB", "at least one byte"),
        (0, "at least one byte"),
        (-5, "at least one byte"),
        (True, "give a number of bytes"),
        (1.5, "give a number of bytes"),
        (None, "give a number of bytes"),
    ],
)
def test_an_invalid_amount_is_refused_with_the_cure(amount, sentence):
    with pytest.raises(ConfigError) as refused:
        parse_bytes(amount)
    assert sentence in str(refused.value)


def test_the_setting_that_is_wrong_is_named():
    with pytest.raises(ConfigError, match=r"^room='x'"):
        parse_bytes("x", "room")


@pytest.mark.parametrize(
    ("number", "text"),
    [(5, "5 B"), (1024, "1.0 KiB"), (3 << 19, "1.5 MiB"), (4 << 30, "4.0 GiB"), (1 << 40, "1.0 TiB")],
)
def test_bytes_are_printed_in_the_largest_unit(number, text):
    assert format_bytes(number) == text


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
