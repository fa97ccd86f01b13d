from types import SimpleNamespace

import pytest

from dorylus.functions.deploy.reporting import process_age_ms, report, reporting

CONTEXT = SimpleNamespace(aws_request_id="r-1")


def test_a_line_gives_the_billed_time_including_a_cold_start():
    assert report("r-1", 1.2, None, "128").split("\t")[1:3] == ["Duration: 1.20 ms", "Billed Duration: 2 ms"]
    cold = report("r-1", 1.2, 100.0, "128")
    assert "Billed Duration: 102 ms" in cold
    assert cold.endswith("Init Duration: 100.00 ms")


def test_each_invocation_has_a_line_and_only_the_first_is_cold():
    lines = []
    handle = reporting(lambda event, context: event + 1, 50.0, "128", lines.append)
    assert [handle(1, CONTEXT), handle(2, CONTEXT)] == [2, 3]
    assert ["Init Duration" in line for line in lines] == [True, False]


def test_a_failed_invocation_is_billed_too():
    lines = []

    def fail(event, context):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        reporting(fail, 0.0, "128", lines.append)(1, CONTEXT)
    assert len(lines) == 1


def test_a_process_knows_its_age():
    assert 0 < process_age_ms() < 1000 * 60 * 60 * 24
