import io

import pytest
from rich.console import Console

from dorylus.cli.console import progress_bar


def drawn(seconds_a_block, *, terminal=True):
    """The output while three blocks of 40 MB are read, and how often ``before_first`` was called."""
    now, text, begun = [0.0], io.StringIO(), []
    console = Console(file=text, force_terminal=terminal, width=120, color_system=None)
    with progress_bar(
        "comparing checksums", "bytes", console, lambda: now[0], before_first=lambda: begun.append(1)
    ) as report:
        for done in (1, 2, 3):
            now[0] += seconds_a_block
            report(done * 40_000_000, 120_000_000)
    return text.getvalue(), len(begun)


def test_long_work_shows_the_rate_and_the_time_left():
    output, begun = drawn(4.0)
    assert "comparing checksums" in output
    assert "10.0 MB/s" in output
    assert begun == 1


@pytest.mark.parametrize(("seconds", "terminal"), [(0.5, True), (4.0, False)])
def test_short_work_and_files_get_no_bar(seconds, terminal):
    assert drawn(seconds, terminal=terminal) == ("", 0)
