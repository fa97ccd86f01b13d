"""Memory that is given back is spoilt at once: whoever still reads it gets NaN, not last epoch's numbers."""

import pytest

from dorylus.servers.graph.matrices import Arena


@pytest.fixture(autouse=True)
def memory_given_back_is_spoilt(monkeypatch):
    give = Arena.give

    def spoil(self, block):
        block.fill(0xFF)  # NaN, as float32 and as bfloat16
        give(self, block)

    monkeypatch.setattr(Arena, "give", spoil)
