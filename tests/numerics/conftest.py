"""Returned memory is overwritten with NaN at once: a late read gets NaN, not the numbers of the last epoch."""

import pytest

from dorylus.servers.graph.matrices import Arena


@pytest.fixture(autouse=True)
def returned_memory_is_overwritten(monkeypatch):
    give = Arena.give

    def overwrite(self, block):
        block.fill(0xFF)  # NaN, as float32 and as bfloat16
        give(self, block)

    monkeypatch.setattr(Arena, "give", overwrite)
