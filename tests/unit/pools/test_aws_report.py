from base64 import b64encode

import pytest

from dorylus.pools.aws_lambda import LambdaReport

WARM = "START RequestId: r\nEND RequestId: r\nREPORT RequestId: r\tDuration: 3.14 ms\tBilled Duration: 4 ms\tMemory Size: 1769 MB\tMax Memory Used: 90 MB\t\n"  # fmt: skip  # noqa: E501
COLD = WARM.rstrip() + "\tInit Duration: 312.44 ms\t\n"
AS_JSON = (
    '{"type":"platform.report","record":{"metrics":{"durationMs":3.1,"billedDurationMs":317,"initDurationMs":312.4}}}'
)


def encoded(text):
    return b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("log", "report"),
    [
        (WARM, LambdaReport(4.0, None, False)),
        (COLD, LambdaReport(4.0, 312.44, True)),
        (AS_JSON, LambdaReport(317.0, 312.4, True)),
        ("what a function printed\n" + WARM, LambdaReport(4.0, None, False)),
        ("only what a function printed", LambdaReport()),
        ("", LambdaReport()),
        (COLD.replace("312.44", "3.1.4"), LambdaReport(4.0, None, False)),
        (WARM.replace(": 4 ms", f": {'9' * 5000} ms"), LambdaReport()),
        (AS_JSON.replace("317", "9" * 5000), LambdaReport()),
    ],
)
def test_the_end_of_a_log_gives_the_billed_time_and_whether_the_start_was_cold(log, report):
    assert LambdaReport.of(encoded(log)) == report


@pytest.mark.parametrize("log", [None, "", "no base64!"])
def test_a_missing_log_gives_an_empty_report(log):
    assert LambdaReport.of(log) == LambdaReport()
