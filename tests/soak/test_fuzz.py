"""A million hostile inputs. FUZZ_CASES sets their number, FUZZ_SEED their seed; every kind is a test of its own.

A report names a case that breaks a rule by kind, seed and number, which make the same case again.
"""

import os
from pathlib import Path

import pytest

from hostile import campaign
from hostile.kinds import KINDS

TOTAL = int(os.environ.get("FUZZ_CASES", "1000000"))
SEED = os.environ.get("FUZZ_SEED", "soak")
PER_MILLION = {
    "frames": 300_000, "pieces": 150_000, "answers": 150_000, "pushes": 130_000, "requests": 130_000,
    "invocations": 60_000, "programs": 20_000, "cached programs": 10_000, "run.toml": 15_000, "run logs": 9_000,
    "checkpoints": 6_000, "stores": 8_000, "text edges": 4_000, "npy edges": 4_000, "arrow edges": 2_000,
    "parquet edges": 2_000,
}  # fmt: skip


def test_the_numbers_of_cases_sum_to_a_million() -> None:
    assert sum(PER_MILLION.values()) == 1_000_000
    assert PER_MILLION.keys() == KINDS.keys()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", PER_MILLION)
def test_hostile_input(kind: str, tmp_path: Path) -> None:
    cases = max(1, PER_MILLION[kind] * TOTAL // 1_000_000)
    (report,) = campaign.run({kind: cases}, tmp_path, seed=SEED)
    print(report)
    assert report.broken == []
    assert report.cases == cases
