from dorylus.report.closing_table import pool_line, pool_rows
from dorylus.report.summary import Summary

FIGURES = {
    "data_path": "direct", "functions": 16, "invocations": 1234, "cold_starts": 3, "bytes_in": 3 << 20,
    "bytes_out": 1 << 20, "billed_ms": 8268.0, "relaunches": 0, "duplicates": 0, "duplicate_parts": 0, "timeouts": 0,
    "losses": 0, "throttled": 0,
}  # fmt: skip


def rows(**changes):
    return pool_rows(Summary(config={"pool": "lambda"}, result={"pool": FIGURES | changes}))


def test_a_run_without_functions_has_no_rows():
    assert pool_rows(Summary()) == []
    assert pool_rows(Summary(result={"pool": {}})) == []


def test_functions_are_reported_with_their_traffic_and_bill():
    assert rows() == [
        ("functions", "lambda, direct, 16 at once at the end"),
        ("invocations", "1,234 (3 cold), 3.0 MiB in, 1.0 MiB out, 8.27 s billed"),
        ("tried again", "–"),
    ]


def test_faults_of_functions_are_counted():
    table = dict(rows(relaunches=12, duplicates=2, duplicate_parts=5, timeouts=4, losses=7, throttled=1))
    assert table["tried again"] == "12 relaunched, 7 duplicates dropped; 4 timed out, 7 lost, 1 throttled"


def test_the_data_path_is_reported_when_it_is_chosen():
    line = pool_line({"kind": "pool", "what": "data_path", "path": "inline", "why": "asked for"})
    assert line == "data path inline: tensors travel in the payloads of invocations (asked for)"


def test_exported_programs_are_reported_where_the_export_took_long():
    record = {"kind": "pool", "what": "program", "body": "layer 0 (GCN)", "mode": "gradient"}
    assert pool_line({**record, "seconds": 1.25}) == (
        "exported layer 0 (GCN), gradient, in 1.25 s; it is kept for the next run"
    )
    assert pool_line({**record, "seconds": 0.01}) is None
    assert pool_line({"kind": "pool", "what": "autotune", "old": 1, "new": 2}) is None
