import dataclasses
from pathlib import Path

import pytest

from dorylus.wire.frames import DTYPES, FrameLimits
from dorylus.wire.port import PortCounts

PAGE = (Path(__file__).parents[3] / "docs" / "wire.md").read_text()


@pytest.mark.parametrize("field", dataclasses.fields(PortCounts), ids=lambda field: field.name)
def test_every_count_is_documented(field):
    assert f"| `{field.name}` |" in PAGE


@pytest.mark.parametrize("field", dataclasses.fields(FrameLimits), ids=lambda field: field.name)
def test_every_limit_is_documented(field):
    assert f"{field.name}`" in PAGE


def test_every_dtype_is_documented():
    assert f"one of {', '.join(DTYPES)}." in " ".join(PAGE.split())
