"""The outputs in docs/cost.md are what its code prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from dorylus.cost.price_book import read_prices

PAGE = Path(__file__).parents[3] / "docs" / "cost.md"
BLOCK = re.compile(r"```(\w*)\n(.*?)```\n", re.DOTALL)


def blocks():
    return [(match[1], match[2]) for match in BLOCK.finditer(PAGE.read_text())]


def test_what_the_page_prints_is_what_its_code_prints():
    found = blocks()
    programs = [index for index, (kind, _) in enumerate(found) if kind == "python"]
    assert len(programs) >= 5
    names = {}
    for index in programs:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(found[index][1], names)
        kind, printed = found[index + 1]
        assert kind == ""
        assert out.getvalue() == printed


def test_the_price_book_on_the_page_is_a_good_one():
    (text,) = (text for kind, text in blocks() if kind == "toml")
    assert read_prices(text, "cost.md").instances["own.big"].source == "our contract, annex 2"
    with pytest.raises(Exception, match="has no date"):
        read_prices(text.replace(', date = "2026-09"', ""), "cost.md")
