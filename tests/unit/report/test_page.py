import base64
import hashlib
import json
import re
from importlib.resources import files

import pytest
from log_of_a_run import (
    cluster_run_record,
    epoch_record,
    evaluation_record,
    result_record,
    run_record,
    spans_record,
)

from dorylus.report.page import MOST_KEPT, MOST_POINTS, Curve, RunFigures, live_page, number, report_page, thin

ASSETS = files("dorylus.report") / "assets"
OURS = ("page.js", "timeline.js")
HOSTILE = "</script><script>alert(1)</script>\u2028<!--{title}"
BILL_LINE = {
    "what": "graph servers", "quantity": "2", "unit": "h", "unit_price": "0.25", "usd": "0.5", "source": "a list",
    "date": "2026-01", "on_paper": True,
}  # fmt: skip


def figures(*records, name="mine", **more):
    """The figures of a run."""
    run = RunFigures(name, **more)
    for record in records:
        run.add(record)
    return run


def data_of(page):
    """The data of a page, read as a browser reads them: up to the first end of the element."""
    text = page.decode().split('<script type="application/json" id="data">')[1].split("</script>")[0]
    return json.loads(text)


def test_a_page_holds_the_curves_of_a_run():
    run = figures(run_record(), *(epoch_record(k, usd=0.1 * k) for k in (1, 2, 3)), evaluation_record(3, 0.5))
    (held,) = data_of(report_page([run]))["runs"]
    assert held["curves"]["loss"] == [[1, 2, 3], [1, 0.5, 0.333333]]
    assert held["curves"]["seconds"] == [[1, 2, 3], [0.5, 0.5, 0.5]]
    assert held["curves"]["epoch_usd"][0] == [2, 3]
    assert held["curves"]["epoch_usd"][1] == pytest.approx([0.1, 0.1])
    assert held["scores"]["val_accuracy"] == [[3], [0.5]]
    assert held["tasks"][0] == ["GA", "gather", 0.5, "750 ms"]


def test_an_element_cannot_be_ended_by_a_name():
    record = run_record(graph={"name": HOSTILE}, model={"name": HOSTILE}, config={"partition": HOSTILE})
    page = report_page([figures(record, {"kind": "fault", "t": 1.0, "error": HOSTILE}, name=HOSTILE)])
    (held,) = data_of(page)["runs"]
    assert held["title"] == f"{HOSTILE} on {HOSTILE}"
    assert held["settings"]["partition"] == HOSTILE
    assert HOSTILE in held["events"][0][1]
    assert page.count(b"<script") == page.count(b"</script>") == 4
    assert b"<!--" not in page.replace(files("dorylus.report").joinpath("assets/uPlot.iife.min.js").read_bytes(), b"")


def test_a_name_that_is_no_text_is_shown_all_the_same():
    assert "?" in data_of(report_page([figures(run_record(), name="run-\udcff")]))["runs"][0]["name"]


@pytest.mark.parametrize("page", [report_page([figures(run_record())]), live_page("mine")], ids=["report", "live"])
def test_the_policy_allows_the_scripts_and_the_style_of_the_page_by_their_hashes(page):
    text = page.decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#x27;", "'")
    for element, directive in (("script", "script-src"), ("style", "style-src")):
        contents = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        allowed = re.search(rf"{directive} ([^;]*)", policy)[1].split()
        digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in contents]
        assert allowed == [f"'sha256-{digest}'" for digest in digests]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert ("connect-src 'self'" in policy) == (page == live_page("mine"))


def test_a_page_names_no_other_place():
    text = report_page([figures(run_record())]).decode()
    ours = "".join((ASSETS / name).read_text() for name in (*OURS, "page.css", "page.html"))
    assert re.findall(r"https?://|@import|url\(|eval\(|innerHTML|document\.write", ours) == []
    assert re.findall(r'(?:src|href)="([^"#]*)"', text.split("<body>")[0]) == ["data:,"]


def test_a_page_is_small_beside_its_data():
    assert len(live_page("mine")) < 200_000
    assert sum(len((ASSETS / name).read_bytes()) for name in OURS) < 40_000


def test_the_licence_of_the_charts_is_shipped():
    assert "MIT" in (ASSETS / "uPlot.LICENSE").read_text()


def test_a_run_without_anything_has_a_page():
    (held,) = data_of(report_page([figures()]))["runs"]
    assert (held["tasks"], held["bill"], held["timeline"], held["scores"]) == ([], {}, [], {})
    assert held["state"]["kind"] == "open"


def test_the_state_of_a_run_is_in_words():
    def state(*records):
        return figures(run_record(epochs=5), *records).snapshot()["state"]

    stop = {"kind": "stop", "reason": "patience", "epoch": 2}
    assert (
        state(epoch_record(2), stop, result_record())["text"] == "ended after 2 epochs: validation score no longer rose"
    )
    assert "killed, after epoch 2 of 5" in state(epoch_record(2))["text"]
    diverged = state(epoch_record(2), {"kind": "stop", "reason": "diverged", "epoch": 2})
    assert diverged == {"kind": "bad", "text": "stopped after epoch 2 of 5, without a result: diverged"}


def test_the_bill_has_every_line_with_the_source_of_its_price():
    bill = {"total_usd": 0.5, "paper_usd": 0.5, "lines": [BILL_LINE]}
    held = figures(run_record(), result_record(bill=bill)).snapshot()["bill"]
    assert held == {
        "rows": [["graph servers", "2 h", "$0.25/h", "$0.50", "a list (2026-01)"]], "total": "$0.50", "paper": "$0.50",
    }  # fmt: skip
    assert figures(run_record(), epoch_record(1, usd=0.25)).snapshot()["bill"] == {"total": "$0.25"}


def test_memory_is_predicted_and_measured_side_by_side():
    plan = {
        "kind": "memory", "peak_bytes": 2**20, "resident": {"edges": 2**10, "work": 0}, "on_disk": {"features": 2**11},
        "read_bytes": 2**12, "written_bytes": 0,
    }  # fmt: skip
    files_moved = {"read_bytes": 2**13, "written_bytes": 0}
    held = figures(run_record(), plan, epoch_record(1, files=files_moved)).snapshot()["memory"]
    assert held["predicted"] == [
        ["peak, without code of libraries", "1.0 MiB", 2**20],
        ["read from files per epoch", "4 KiB", 2**12],
    ]
    assert held["measured"][-1] == ["read from files per epoch", "8 KiB", 2**13]
    assert [row[0] for row in held["kinds"]] == ["edges", "features, in files"]


def test_ages_come_with_the_bound_of_an_asynchronous_run():
    records = cluster_run_record(staleness=2), epoch_record(1, ages={"-1": 1, "0": 5, "2": 3}, waits=4)
    assert figures(*records).snapshot()["ages"] == {"counts": [[-1, 1], [0, 5], [2, 3]], "bound": 3, "waits": 4}


def test_a_timeline_has_columns_of_tasks_and_epochs_in_a_row_together():
    epochs = [spans_record(k, ("GA", 7, 0, 0.0, 0.25, 0, k), ("WU", 7, 0, 0.25, 0.5, 0, k), t=k / 2) for k in (1, 2, 8)]
    first, last = figures(run_record(), *epochs).snapshot()["timeline"]
    assert (first["label"], last["label"]) == ("epochs 1 to 2", "epoch 8")
    assert first["kinds"] == [["GA", "gather"], ["WU", "weight update"]]
    assert first["lanes"] == [[0, 0, 0]]
    assert first["tasks"]["start"] == [0, 250_000, 500_000, 750_000]
    assert first["tasks"]["epoch"] == [1, 1, 2, 2]
    assert last["tasks"]["took"] == [250_000, 250_000]


def test_timelines_are_thinned_to_their_longest_tasks(monkeypatch):
    monkeypatch.setattr("dorylus.report.page.MOST_TASKS", 20)
    tasks = [("GA", k, 0, float(k), k + (0.9 if k % 2 else 0.1), 0, 1) for k in range(20)]
    (held,) = figures(run_record(), spans_record(1, *tasks)).snapshot()["timeline"]
    assert held["of"] == 20
    assert held["tasks"]["interval"] == list(range(1, 20, 2))
    many = figures(run_record(), *(spans_record(2**k, *tasks) for k in range(6))).snapshot()["timeline"]
    assert [each["label"] for each in many] == ["epoch 1", "epoch 32"]


def test_a_curve_is_thinned_to_its_extremes():
    values = [float(k % 7) for k in range(100_000)]
    values[31_234], values[77_777] = 99.0, -99.0
    epochs, thinned = thin(range(1, 100_001), values, MOST_POINTS)
    assert len(thinned) <= MOST_POINTS
    assert (epochs[0], epochs[-1]) == (1, 100_000)
    assert epochs[thinned.index(99.0)] == 31_235
    assert epochs[thinned.index(-99.0)] == 77_778
    assert epochs == sorted(set(epochs))


def test_a_curve_of_any_length_takes_little_memory():
    curve = Curve()
    for epoch in range(1, 2 * MOST_KEPT):
        curve.add(epoch, 1.0 if epoch == 5 else 0.0)
    assert len(curve.values) < MOST_KEPT
    assert curve.points()[1].count(1.0) == 1


def test_points_that_a_page_has_are_not_sent_again():
    run = figures(run_record(), epoch_record(1))
    run.snapshot()
    assert run.changes()["more"]["loss"] == [[], []]
    run.add(epoch_record(2))
    run.add(evaluation_record(2, 0.5))
    changes = run.changes()
    assert changes["more"]["loss"] == [[2], [0.5]]
    assert changes["more_scores"]["val_accuracy"] == [[2], [0.5]]
    assert "timeline" not in changes
    run.add(spans_record(2, ("GA", 7, 0, 0.0, 0.25, 0, 2)))
    assert len(run.changes()["timeline"]) == 1


@pytest.mark.parametrize("value", [None, True, "1", float("nan"), float("inf"), 10**400, [1]])
def test_what_is_no_number_is_left_out_of_curves(value):
    assert number(value) is None
    run = figures(run_record(), epoch_record(1))
    run.curves["loss"].add(2, number(value))
    assert run.snapshot()["curves"]["loss"] == [[1], [1]]


def test_a_loss_that_is_not_finite_leaves_a_page():
    run = figures(run_record(), epoch_record(1), epoch_record(2, loss=None))
    assert run.snapshot()["curves"]["loss"] == [[1], [1]]
