from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.cost import FunctionUse, Phase, PriceBook, Rates, Usage, make_bill
from dorylus.cost.price_book import Tier
from dorylus.cost.pricing import graduated, with_free

BOOK = PriceBook.load()
MB_MS = 1_024_000  # of one GB-s
X86, ARM = BOOK.function("lambda-x86"), BOOK.function("lambda-arm")


def gb_s_lines(service, gb_s, **more):
    usage = Usage(functions={Phase.TRAINING: FunctionUse(requests=1, mb_ms=gb_s * MB_MS)})
    bill = make_bill(usage, Rates.of(BOOK, "c5.large", function=service, **more))
    return [(int(line.quantity), str(line.unit_price)) for line in bill.lines() if line.unit == "GB-s"]


@pytest.mark.parametrize(
    ("service", "gb_s", "lines"),
    [
        ("lambda-x86", 5_999_999_999, [(5_999_999_999, "0.0000166667")]),
        ("lambda-x86", 6_000_000_000, [(6_000_000_000, "0.0000166667")]),
        ("lambda-x86", 6_000_000_001, [(6_000_000_000, "0.0000166667"), (1, "0.000015")]),
        ("lambda-x86", 15_000_000_000, [(6_000_000_000, "0.0000166667"), (9_000_000_000, "0.000015")]),
        (
            "lambda-x86",
            15_000_000_001,
            [(6_000_000_000, "0.0000166667"), (9_000_000_000, "0.000015"), (1, "0.0000133334")],
        ),
        ("lambda-arm", 7_500_000_000, [(7_500_000_000, "0.0000133334")]),
        ("lambda-arm", 7_500_000_001, [(7_500_000_000, "0.0000133334"), (1, "0.0000120001")]),
        (
            "lambda-arm",
            18_750_000_001,
            [(7_500_000_000, "0.0000133334"), (11_250_000_000, "0.0000120001"), (1, "0.0000106667")],
        ),
    ],
)
def test_each_part_of_a_month_is_priced_by_its_own_tier(service, gb_s, lines):
    assert gb_s_lines(service, gb_s) == lines


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        (5_999_999_998, [(2, "0.0000166667")]),
        (5_999_999_999, [(1, "0.0000166667"), (1, "0.000015")]),
        (6_000_000_000, [(2, "0.000015")]),
        (14_999_999_999, [(1, "0.000015"), (1, "0.0000133334")]),
        (15_000_000_000, [(2, "0.0000133334")]),
    ],
)
def test_a_run_begins_in_the_tier_that_the_month_has_reached(before, lines):
    assert gb_s_lines("lambda-x86", 2, month_gb_s=before) == lines


def test_cold_starts_and_evaluation_come_after_training_in_the_tiers():
    use = FunctionUse(requests=1, mb_ms=6_000_000_000 * MB_MS, cold_starts=3, cold_mb_ms=5 * MB_MS)
    usage = Usage(functions={Phase.TRAINING: use, Phase.EVALUATION: FunctionUse(requests=1, mb_ms=7 * MB_MS)})
    bill = make_bill(usage, Rates.of(BOOK, "c5.large", function="lambda-x86"))
    assert [(line.what, int(line.quantity)) for line in bill.lines() if line.unit == "GB-s"] == [
        ("functions, lambda-x86, training", 6_000_000_000),
        ("functions, lambda-x86, evaluation, above 6,000,000,000 GB-s a month", 7),
        ("functions, lambda-x86, 3 cold starts, above 6,000,000,000 GB-s a month", 5),
    ]


def test_the_free_tier_is_not_assumed():
    assert gb_s_lines("lambda-x86", 400_000) == [(400_000, "0.0000166667")]


@pytest.mark.parametrize(
    ("gb_s", "before", "lines"),
    [
        (399_999, 0, [(399_999, "0")]),
        (400_000, 0, [(400_000, "0")]),
        (400_001, 0, [(400_000, "0"), (1, "0.0000166667")]),
        (10, 399_995, [(5, "0"), (5, "0.0000166667")]),
        (10, 400_000, [(10, "0.0000166667")]),
    ],
)
def test_the_free_tier_is_taken_off_where_requested(gb_s, before, lines):
    assert gb_s_lines("lambda-x86", gb_s, free_tier=True, month_gb_s=before) == lines


@pytest.mark.parametrize(
    ("requests", "before", "paid"),
    [(1_000_000, 0, 0), (1_000_001, 0, 1), (10, 999_995, 5), (10, 2_000_000, 10)],
)
def test_free_requests_are_taken_off_where_requested(requests, before, paid):
    usage = Usage(functions={Phase.TRAINING: FunctionUse(requests=requests)})
    prices = Rates.of(BOOK, "c5.large", function="lambda-x86", free_tier=True, month_requests=before)
    assert make_bill(usage, prices).total() == paid * Decimal("0.0000002")


def test_free_requests_are_given_once_not_once_a_phase():
    usage = Usage(functions={phase: FunctionUse(requests=600_000) for phase in Phase})
    prices = Rates.of(BOOK, "c5.large", function="lambda-x86", free_tier=True)
    assert make_bill(usage, prices).total() == 800_000 * Decimal("0.0000002")


decimals = st.decimals(0, 10**11, places=6)


@given(st.sampled_from([X86.tiers, ARM.tiers, with_free(X86.tiers, X86.free_gb_s)]), decimals, decimals)
def test_tiers_split_an_amount_without_losing_any(tiers, start, amount):
    parts = graduated(tiers, start, amount)
    assert sum(part for _, part in parts) == amount
    assert all(part > 0 for _, part in parts)


@given(decimals, decimals, decimals)
def test_a_month_costs_the_same_however_it_is_cut(start, first, second):
    def usd(start, amount):
        return sum(tier.usd_per_gb_s * part for tier, part in graduated(X86.tiers, start, amount))

    assert usd(start, first + second) == usd(start, first) + usd(start + first, second)


def test_what_is_free_may_reach_into_a_later_tier():
    tiers = (Tier(Decimal(0), Decimal(3)), Tier(Decimal(10), Decimal(2)), Tier(Decimal(20), Decimal(1)))
    free = with_free(tiers, Decimal(10))
    assert [(int(tier.from_gb_s), int(tier.usd_per_gb_s)) for tier in free] == [(0, 0), (10, 2), (20, 1)]
