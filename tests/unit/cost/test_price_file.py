import re

import pytest

from dorylus.cost.price_book import read_prices
from dorylus.errors import DataError

GOOD = """
format = 1
[sources]
page = "the vendor's page"
[instances.small]
arch = "x86_64"
vcpus = 2
memory_gib = 4
usd_per_hour = 0.1
source = "page"
date = "2026-08"
[functions.quick]
tiers = [{ from_gb_s = 0, usd_per_gb_s = 0.00001 }, { from_gb_s = 100, usd_per_gb_s = 0.000009 }]
usd_per_million_requests = 0.2
granularity_ms = 1
cold_start_billed = true
source = "page"
date = "2026"
[transfer.near]
what = "next door"
usd_per_gb = 0
billed_ends = 0
source = "page"
date = "2026-08-31"
"""


def test_a_good_file_is_read():
    prices = read_prices(GOOD, "own.toml")
    assert prices.instances["small"].source == "the vendor's page"
    assert [tier.from_gb_s for tier in prices.functions["quick"].tiers] == [0, 100]
    assert prices.transfers["near"].date == "2026-08-31"


def test_historic_sets_are_read_by_the_same_rules():
    text = re.sub(r"^\[", "[historic.then.", GOOD, flags=re.MULTILINE)
    assert set(read_prices(text, "own.toml").historic["then"].functions) == {"quick"}
    with pytest.raises(DataError, match=r"own\.toml: historic\.then: instances\.small has no date"):
        read_prices(text.replace('date = "2026-08"\n', "", 1), "own.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('source = "page"\ndate = "2026-08"', 'date = "2026-08"', "instances.small has no source"),
        ('date = "2026-08"\n', "", "instances.small has no date"),
        ('date = "2026"\n', "", "functions.quick has no date"),
        ('date = "2026-08-31"\n', "", "transfer.near has no date"),
        ('source = "page"\ndate = "2026-08"', 'source = "pagee"\ndate = "2026-08"', "Did you mean 'page'"),
        ('source = "page"\ndate = "2026-08"', 'source = ""\ndate = "2026-08"', "source is '', but must be text"),
        ('page = "the vendor\'s page"', 'page = " "', "sources.page is ' '"),
        ('date = "2026-08"', 'date = "last summer"', "date is 'last summer': write a date"),
        ('date = "2026-08"', 'date = "2026-13"', "date is '2026-13'"),
        ('date = "2026-08-31"', 'date = "2026-02-30"', "date is '2026-02-30'"),
        ('date = "2026-08"', "date = 2026-08-01", "must be text"),
        ("usd_per_hour = 0.1", "usd_per_hour = -0.1", "must be a number that is not negative"),
        ("usd_per_hour = 0.1", "usd_per_hour = nan", "must be a number that is not negative"),
        ("usd_per_hour = 0.1", 'usd_per_hour = "0.1"', "must be a number that is not negative"),
        ("usd_per_hour = 0.1", "usd_per_hour = true", "must be a number that is not negative"),
        ("usd_per_hour = 0.1", "price = 0.1", "unknown key 'price'"),
        ("usd_per_hour = 0.1\n", "", "has no usd_per_hour"),
        ("memory_gib = 4", "memory_gib = 0", "must be positive"),
        ("vcpus = 2", "vcpus = 2.5", "must be a whole number, at least 1"),
        ("vcpus = 2", "vcpus = 0", "must be a whole number, at least 1"),
        ('arch = "x86_64"', 'arch = "x86"', "unknown architecture 'x86'"),
        ("cold_start_billed = true", "cold_start_billed = 1", "must be true or false"),
        ("granularity_ms = 1", "granularity_ms = 0", "must be a whole number, at least 1"),
        ("billed_ends = 0", "billed_ends = -1", "must be a whole number, at least 0"),
        ("{ from_gb_s = 0,", "{ from_gb_s = 1,", "the first starts at 0"),
        ("{ from_gb_s = 100,", "{ from_gb_s = 0,", "each later one after it"),
        ("{ from_gb_s = 100,", "{ from = 100,", "a tier has from_gb_s and usd_per_gb_s"),
        ("tiers = [{ from_gb_s = 0, usd_per_gb_s = 0.00001 }, ", "tiers = [3, ", "must be a table"),
        ("[transfer.near]", "[transfers.near]", "Did you mean 'transfer'"),
        ("format = 1", "format = 2", "says format = 2, but only 1 is known"),
        ("format = 1", "", "says format = None"),
        ("format = 1", "format = ", "is not TOML"),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused_with_a_message(old, new, message):
    assert old in GOOD
    with pytest.raises(DataError) as caught:
        read_prices(GOOD.replace(old, new, 1), "own.toml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("own.toml")


def test_tiers_may_not_be_missing():
    with pytest.raises(DataError, match="must list at least one tier"):
        read_prices(re.sub(r"tiers = .*\n", "tiers = []\n", GOOD), "own.toml")


def test_a_row_must_be_a_table():
    with pytest.raises(DataError, match=r"own\.toml: instances\.small is 3, but must be a table"):
        read_prices("format = 1\n[instances]\nsmall = 3\n", "own.toml")
    with pytest.raises(DataError, match=r"own\.toml: historic\.then is 3, but must be a table"):
        read_prices("format = 1\n[historic]\nthen = 3\n", "own.toml")
