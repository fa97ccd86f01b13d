import re
from decimal import Decimal

import pytest

from dorylus.cost import PriceBook, Rounding
from dorylus.errors import ConfigError, DataError

GIB = 2**30


@pytest.fixture(scope="module")
def book():
    return PriceBook.load()


def every_row(book):
    rows = [*book.instances.values(), *book.functions.values(), *book.transfers.values()]
    return rows + [row for past in book.past.values() for row in every_row(past)]


def test_every_price_has_a_source_and_a_date(book):
    rows = every_row(book)
    assert 60 <= len(rows) <= 90
    for row in rows:
        assert len(row.source) > 10, row.name
        assert re.fullmatch(r"20\d\d(-\d\d(-\d\d)?)?", row.date), row.name


def test_prices_are_exact_decimals(book):
    assert book.instance("c5n.2xlarge").usd_per_hour == Decimal("0.432")
    assert book.function("lambda-x86").tiers[0].usd_per_gb_s == Decimal("0.0000166667")
    assert book.transfer("cross-zone").usd_per_gb_moved == Decimal("0.02")


def test_services_have_their_own_rounding(book):
    assert book.function("lambda-x86").rounding == Rounding(1)
    assert book.function("cloud-run").rounding == Rounding(100)
    assert book.function("azure-consumption").rounding == Rounding(1, minimum_ms=100, memory_step_mb=128)
    assert book.historic("dorylus-2021").function("lambda-x86").rounding == Rounding(100)


def test_sizes_of_a_family_are_in_proportion(book):
    for family in ("c5", "c5n", "c6i", "c6g", "c7g", "m7i", "r7i"):
        of_family = [each for each in book.instances.values() if each.name.startswith(f"{family}.")]
        per_vcpu = [each.usd_per_hour / each.vcpus for each in of_family]
        assert max(per_vcpu) / min(per_vcpu) < Decimal("1.001"), family


def test_spot_is_never_dearer_than_on_demand(book):
    assert all(0 < each.spot_factor <= 1 for each in book.instances.values())


def test_later_tiers_are_ten_and_twenty_percent_cheaper(book):
    for name in ("lambda-x86", "lambda-arm"):
        first, second, third = (tier.usd_per_gb_s for tier in book.function(name).tiers)
        assert second / first == pytest.approx(Decimal("0.9"), abs=Decimal("1e-5"))
        assert third / first == pytest.approx(Decimal("0.8"), abs=Decimal("1e-5"))


@pytest.mark.parametrize(
    ("lookup", "name", "nearest"),
    [
        ("instance", "c5n.3xlarge", "c5n.xlarge"),
        ("instance", "m6i.2xlarge", "m7i.2xlarge"),
        ("function", "lambda-x68", "lambda-x86"),
        ("transfer", "cross-zones", "cross-zone"),
        ("historic", "dorylus-2020", "dorylus-2021"),
    ],
)
def test_the_error_of_an_unknown_name_lists_the_known_ones_and_the_nearest(book, lookup, name, nearest):
    with pytest.raises(ConfigError, match=f"unknown.* {name!r}|{name!r} is unknown: the known ones are") as caught:
        getattr(book, lookup)(name)
    assert f"Did you mean {nearest!r}?" in str(caught.value)


def test_what_can_no_longer_be_bought_is_found_in_the_past(book):
    with pytest.raises(ConfigError, match=r"It is in the price book of the past 'dorylus-2021'"):
        book.instance("p3.2xlarge")
    assert book.historic("dorylus-2021").instance("p3.2xlarge").usd_per_hour == Decimal("3.06")


@pytest.mark.parametrize(
    ("cores", "memory_gib", "arch", "name"),
    [
        (8, 15.3, "x86_64", "c6i.2xlarge"),  # as cheap as c5.2xlarge, but with more network
        (8, 16, "x86_64", "c6i.2xlarge"),
        (8, 16.001, "x86_64", "m5.2xlarge"),
        (9, 16, "x86_64", "c6i.4xlarge"),
        (2, 24, "x86_64", "r5.xlarge"),
        (1, 0.5, "arm64", "c7g.large"),
        (8, 16, "aarch64", "c6g.2xlarge"),
        (192, 300, "AMD64", "c7i.48xlarge"),
    ],
)
def test_the_nearest_instance_is_the_cheapest_that_covers_the_machine(book, cores, memory_gib, arch, name):
    found = book.nearest_instance(cores, int(memory_gib * GIB), arch)
    assert found.name == name
    assert found.covers(cores, int(memory_gib * GIB))


def test_the_nearest_instance_has_no_gpu(book):
    then = book.historic("dorylus-2021")  # in which only a type with GPU has 50 GiB
    assert then.nearest_instance(8, 50 * GIB, "x86_64").name == "c5n.4xlarge"


def test_a_machine_larger_than_all_gets_the_largest_which_does_not_cover_it(book):
    found = book.nearest_instance(1000, 16 * GIB, "x86_64")
    assert found.name == "r7i.48xlarge"
    assert not found.covers(1000, 16 * GIB)


def test_an_unknown_processor_is_refused(book):
    with pytest.raises(ConfigError, match="unknown architecture 'riscv64'"):
        book.nearest_instance(4, GIB, "riscv64")


OWN = """
format = 1
[sources]
contract = "our contract, annex 2"
[instances]
"c5.xlarge" = { arch = "x86_64", vcpus = 4, memory_gib = 8, usd_per_hour = 0.1, source = "contract", date = "2026" }
"own.big" = { arch = "x86_64", vcpus = 40, memory_gib = 500, usd_per_hour = 1, source = "contract", date = "2026" }
"""


def test_a_users_file_adds_rows_and_takes_the_place_of_ours(tmp_path):
    (tmp_path / "own.toml").write_text(OWN)
    book = PriceBook.load(tmp_path / "own.toml")
    assert book.instance("own.big").source == "our contract, annex 2"
    assert book.instance("c5.xlarge").usd_per_hour == Decimal("0.1")
    assert book.instance("c5.xlarge").spot_factor is None
    assert book.instance("c5.2xlarge").usd_per_hour == Decimal("0.34")
    assert book.nearest_instance(40, 400 * GIB, "x86_64").name == "own.big"


def test_a_file_that_is_not_there_is_named_once_with_the_cure(tmp_path):
    with pytest.raises(DataError, match=r"cannot be read: No such file or directory\. Give the path of") as caught:
        PriceBook.load(tmp_path / "none.toml")
    assert str(caught.value).count("none.toml") == 1


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "own.toml").write_bytes(bytes([255]))
    with pytest.raises(DataError, match="it is not text in UTF-8"):
        PriceBook.load(tmp_path / "own.toml")


def test_a_price_book_of_zeros_is_refused_before_it_is_in_memory(tmp_path, fill_with_zeros, little_memory):
    fill_with_zeros(tmp_path / "mine.toml")
    with little_memory(), pytest.raises(DataError, match=r"cannot be read: mine\.toml has more than 4,194,304 bytes"):
        PriceBook.load(tmp_path / "mine.toml")
