"""About how many different ids there are: never fewer than there are, and hardly more."""

import numpy as np
import pytest

from dorylus.ingest.batches import Tokens
from dorylus.ingest.numbering import DistinctIds


@pytest.mark.parametrize("count", [0, 1, 1000, 100_000, 1_000_000])
@pytest.mark.parametrize("spread", [1, 1_000_003, -(1 << 40)])
def test_numbers_are_counted_once_each(count: int, spread: int) -> None:
    found, ids = DistinctIds(), np.arange(count, dtype=np.int64) * spread
    found.add(ids)
    found.add(ids[::2])
    assert count <= found.most() <= 1.04 * count + 1


def test_names_are_counted_once_each_long_ones_too() -> None:
    names = [f"name-{vertex}" for vertex in range(30_000)] + ["x" * 300_000, "x" * 300_001, ""]
    found = DistinctIds()
    found.add(Tokens.of(names))
    found.add(Tokens.of(names[::-3]))
    assert len(names) <= found.most() <= 1.04 * len(names)


def test_names_with_the_same_bytes_in_another_order_differ() -> None:
    names = [f"{first:02}{second:02}" for first in range(100) for second in range(100)]
    found = DistinctIds()
    found.add(Tokens.of(names))
    assert len(names) <= found.most() <= 1.04 * len(names)
