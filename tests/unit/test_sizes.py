import pytest

from dorylus.errors import ConfigError
from dorylus.sizes import format_bytes, parse_bytes


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
