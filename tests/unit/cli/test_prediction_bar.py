import io

import pytest
from rich.console import Console

from dorylus.cli.predict import prediction_bar


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def drawn(seconds_a_slab, *, terminal=True):
    """The output while three slabs of a million rows are written."""
    clock, text = Clock(), io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, color_system=None)
    with prediction_bar("logits", console, clock) as report:
        for done in (1, 2, 3):
            clock.now += seconds_a_slab
            report(done * 1_000_000, 3_000_000)
    return text.getvalue()


def test_a_long_prediction_shows_the_rate_and_the_time_left():
    output = drawn(4.0)
    assert "computing logits of every vertex" in output
    assert "writing logits" in output
    assert "250,000 rows/s" in output
    assert "0:00:0" in output


def test_a_short_prediction_shows_no_bar():
    assert "writing logits" not in drawn(0.5)


def test_nothing_is_drawn_where_there_is_no_terminal():
    assert drawn(4.0, terminal=False).strip() == ""


def test_the_cursor_is_restored_after_an_error():
    clock, text = Clock(), io.StringIO()
    console = Console(file=text, force_terminal=True, width=120, color_system=None)

    def interrupted():
        with prediction_bar("logits", console, clock) as report:
            clock.now = 3.0
            report(1, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    hide_cursor, show_cursor = "\x1b[?25l", "\x1b[?25h"
    assert text.getvalue().rfind(show_cursor) > text.getvalue().rfind(hide_cursor) >= 0
