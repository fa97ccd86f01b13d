import io

import pytest
from log_of_a_run import GRAPH, cluster_run_record, epoch_record, evaluation_record, result_record, run_record
from rich.console import Console

from dorylus import units
from dorylus.report.closing_table import closing_table, rows
from dorylus.report.summary import summarise
from dorylus.report.terminal import TerminalProgress, figures

MANY_LABELS = GRAPH | {"multilabel": True}


def output_of(records, *, terminal=False, progress=True):
    text = io.StringIO()
    sink = TerminalProgress(Console(file=text, width=140, force_terminal=terminal), progress=progress)
    for record in records:
        sink.write(record)
    sink.close()
    return text.getvalue()


def lines_of(records, **options):
    return [line for line in output_of(records, **options).splitlines() if line.startswith("epoch")]


def test_a_pipe_gets_a_line_now_and_then_and_one_for_the_last_epoch():
    epochs = [epoch_record(number, 0.01) for number in range(1, 201)]
    lines = lines_of([run_record(200), *epochs])
    assert [line.split()[1] for line in lines] == [f"{n}/200" for n in (1, *range(21, 200, 20), 200)]


def test_slow_epochs_get_a_line_every_half_minute():
    lines = lines_of([run_record(10_000), *(epoch_record(number, 16.0) for number in range(1, 6))])
    assert [line.split()[1] for line in lines] == ["1/10000", "3/10000", "5/10000"]


def test_a_line_reports_loss_accuracy_rate_time_left_and_memory():
    records = [run_record(100), evaluation_record(2, val=0.625), epoch_record(2, 0.25, t=2.0)]
    assert lines_of(records)[0] == "epoch 2/100  loss 0.5  val 62.5 %  4 epochs/s  2.0 MiB"
    assert output_of([*records, epoch_record(12, 0.25, t=7.0)]).splitlines()[-1] == (
        "epoch 12/100  loss 0.08333  val 62.5 % (epoch 2)  2 epochs/s  44 s left  12.0 MiB"
    )


def test_a_score_of_an_earlier_epoch_is_dated_in_a_pipe_and_not_on_a_terminal():
    records = [run_record(200), epoch_record(190), evaluation_record(190, val=0.8), epoch_record(200)]
    assert "val 80.0 % (epoch 190)" in lines_of(records)[-1]
    assert "(epoch 190)" not in output_of(records, terminal=True)


def test_a_multilabel_run_is_reported_in_f1():
    records = [run_record(2, graph=MANY_LABELS), evaluation_record(1, val=0.9, val_micro_f1=0.25), epoch_record(1)]
    assert "val micro F1 25.0 %" in lines_of(records)[0]
    assert "90.0 %" not in lines_of(records)[0]


def test_less_than_a_second_left_is_not_printed_in_fractions():
    records = [run_record(100), epoch_record(88, 0.01), epoch_record(99, 0.01)]
    assert "<1 s left" in lines_of(records)[-1]


@pytest.mark.parametrize("between_s", [0.0, 0.001, 0.25, 3.0])
def test_the_rate_and_the_time_left_agree_whatever_happens_between_epochs(between_s):
    """Evaluations, checkpoints and the log itself take longer than a very short epoch."""
    epochs = [epoch_record(n, 0.001, t=n * (0.001 + between_s)) for n in range(1, 101)]
    summary = summarise([run_record(5100), *epochs])
    printed = figures(summary)
    rate, unit = printed["rate"].split(" ", 1)
    epoch_s = 1 / float(rate) if unit == "epochs/s" else float(rate)
    assert summary.seconds_left == pytest.approx(5000 * epoch_s, rel=0.01)
    assert printed["left"] == f"{units.seconds(summary.seconds_left)} left"


def test_slow_epochs_are_reported_in_seconds_an_epoch():
    assert "2.5 s/epoch" in lines_of([run_record(3), epoch_record(1, 2.5)])[0]


def test_a_loss_that_is_no_number_is_a_dash():
    assert "loss –" in lines_of([run_record(3), epoch_record(1, loss=None)])[0]


def test_the_first_line_names_the_model_and_the_graph():
    expected = "gcn on cora (2,708 vertices, 10,556 edges, 1,433 features, 7 classes), 23,063 parameters"
    assert output_of([run_record()]).splitlines() == [expected]
    assert output_of([run_record(resumed_from=40)]).splitlines() == [expected + ", going on after epoch 40"]
    assert output_of([run_record(40, resumed_from=40)]).splitlines() == [expected + ", whose 40 epochs are done"]


def test_the_first_line_names_servers_and_mode_of_a_cluster_or_an_asynchronous_run():
    (line,) = output_of([cluster_run_record()]).splitlines()
    assert line.endswith("23,063 parameters, 4 graph servers, 2 parameter servers, async with staleness 1")


@pytest.mark.parametrize("terminal", [False, True])
def test_the_switch_to_synchronous_epochs_is_printed(terminal):
    synchronous = {"kind": "synchronous", "epoch": 40, "score": 0.79}
    text = output_of([cluster_run_record(), epoch_record(40), synchronous, epoch_record(41)], terminal=terminal)
    assert "epoch 40: validation is at 79.0 %, close to the target; epochs are synchronous from here on" in text


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end():
    text = output_of([run_record(10), epoch_record(5, 0.25), evaluation_record(5, val=0.5)], terminal=True)
    assert "━" in text
    assert "5/10" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor comes back


def test_a_terminal_can_be_closed_before_any_output():
    assert "━" not in output_of([], terminal=True)


def test_quiet_prints_only_the_closing_table():
    text = output_of([run_record(1), epoch_record(1), result_record()], progress=False)
    assert "epoch 1/1" not in text
    assert "81.50 %" in text


def test_the_table_ends_the_run():
    text = output_of([run_record(1), epoch_record(1), result_record()])
    assert text.index("epoch 1/1") < text.index("test accuracy")


def table_rows(*records):
    return dict(rows(summarise(records)))


def test_the_closing_table_reports_all_results_of_a_run():
    assert table_rows(run_record(), epoch_record(1, 0.004), epoch_record(2, 0.004), result_record()) == {
        "test accuracy": "81.50 %",
        "validation accuracy": "79.00 %",
        "epochs": "2",
        "loss": "0.5",
        "time per epoch": "4 ms (median; 8 ms in all)",
        "time spent": "50 % gathering neighbours, 25 % dense layers, 25 % stepping weights",
        "peak memory": "1.00 GiB",
        "work": "22 % of naive edge-work",
        "run folder": "runs/cora-gcn",
    }


def time_spent(tasks, **config):
    record = run_record(config={"epochs": 1, "threads": 2, **config})
    return table_rows(record, epoch_record(1, seconds=1.0, tasks=tasks))["time spent"]


def test_the_time_that_threads_had_nothing_to_do_is_waiting():
    tasks = {"GA": 0.4, "∇GA": 0.6, "AV": 0.1, "∇AV": 0.1, "AE": 0.02, "WU": 0.001, "odd": 0.1}
    assert (
        time_spent(tasks)
        == "50 % gathering neighbours, 10 % dense layers, 5 % other tasks, 1 % edge layers, 34 % waiting"
    )


@pytest.mark.parametrize("where", [{"pool": "lambda"}, {"cluster": "ray"}])
def test_tasks_in_other_processes_are_shares_of_each_other(where):
    assert time_spent({"GA": 3.0, "AV": 1.0}, **where) == (
        "75 % gathering neighbours, 25 % dense layers (of the time of all tasks)"
    )


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({"keep": "best", "best_epoch": 1, "best_score": 0.8125}, "of epoch 1, the best on validation (81.25 %)"),
        (
            {"keep": "last", "best_epoch": 1, "best_score": 0.8125},
            "of the last epoch; epoch 1 was the best on validation (81.25 %)",
        ),
        ({"keep": "last", "best_epoch": 2, "best_score": 0.8125}, None),
        ({"keep": "last", "best_epoch": None, "best_score": None}, None),
    ],
)
def test_the_closing_table_names_the_epoch_whose_weights_are_kept(result, says):
    assert table_rows(run_record(), epoch_record(1), epoch_record(2), result_record(**result)).get("weights") == says


def test_the_closing_table_of_a_multilabel_run_reports_f1_and_labels_the_accuracy():
    scores = {"test_micro_f1": 0.5, "test_macro_f1": 0.25, "val_micro_f1": 0.625}
    table = table_rows(run_record(graph=MANY_LABELS), epoch_record(1), result_record(**scores))
    assert list(table.items())[:4] == [
        ("test micro F1 / macro F1", "50.00 % / 25.00 %"),
        ("validation micro F1", "62.50 %"),
        ("test accuracy per label", "81.50 %"),
        ("validation accuracy per label", "79.00 %"),
    ]
    assert "test accuracy" not in table
    assert "validation micro F1" not in table_rows(run_record(), result_record(**scores))


def test_the_closing_table_of_a_multilabel_run_leaves_out_missing_scores():
    assert "test micro F1 / macro F1" not in table_rows(run_record(graph=MANY_LABELS), epoch_record(1))


def test_the_closing_table_leaves_out_unknown_values():
    record = run_record(config={"epochs": 1}, model={})
    assert set(table_rows(record, epoch_record(1, tasks={}, memory_bytes=None))) == {"epochs", "loss", "time per epoch"}


def test_the_closing_table_reports_why_a_run_ended_early():
    stop = {"kind": "stop", "reason": "patience", "epoch": 3}
    assert table_rows(epoch_record(3), stop)["epochs"] == "3 (validation score no longer rose)"


def test_work_may_come_as_a_table_with_a_summary():
    assert table_rows(result_record(work={"summary": "22 %", "edges": 1}))["work"] == "22 %"


def test_the_closing_table_is_made_from_plain_records_too():
    table = closing_table([run_record(), result_record()])
    assert table.title == "gcn on cora"
    assert table.row_count == len(rows(summarise([run_record(), result_record()])))


def test_the_closing_table_of_a_resumed_run_is_about_all_of_its_epochs():
    table = table_rows(run_record(resumed_from=5), result_record(final_loss=0.25, seconds_per_epoch=0.5, seconds=2.5))
    assert (table["epochs"], table["loss"], table["time per epoch"]) == ("5", "0.25", "500 ms (median; 2.5 s in all)")


def set_up_record(t, done, stage="gathering the features"):
    fields = {"stage": stage, "done_bytes": done * 2**20, "total_bytes": 100 * 2**20, "seconds": t}
    return {"kind": "set_up", "t": float(t)} | fields


SET_UP_DONE = {"kind": "set_up", "t": 100.0, "stage": None, "seconds": 100.0}


def test_a_set_up_has_a_bar_with_its_rate_and_the_time_left():
    text = output_of([run_record(10), set_up_record(10, 20), set_up_record(20, 40)], terminal=True)
    assert "gathering the features  2.0 MiB/s  30 s left" in text


def test_the_bar_of_a_set_up_disappears_when_it_is_over():
    text = output_of([run_record(10), set_up_record(10, 20), SET_UP_DONE, epoch_record(1)], terminal=True)
    assert "set up in 1 min 40 s" in text
    assert "gathering" not in text[text.rindex("set up in") :]


def test_a_pipe_gets_a_line_about_a_set_up_every_half_minute():
    records = [run_record(10), *(set_up_record(t, t) for t in range(3, 99)), SET_UP_DONE]
    lines = [line for line in output_of(records).splitlines() if line.startswith("set-up")]
    assert [line.rsplit("(")[1] for line in lines] == ["30 %)", "60 %)", "90 %)"]
    assert lines[1] == "set-up: gathering the features  1.0 MiB/s  40 s left (60 %)"


def test_bytes_that_epochs_read_and_wrote_are_printed_with_the_prediction():
    files = [{"read_bytes": each * 2**20, "written_bytes": 2**20} for each in (10, 20)]
    epochs = [epoch_record(number, files=each) for number, each in enumerate(files, 1)]
    planned = {"kind": "memory", "peak_bytes": 1, "on_disk": {}, "read_bytes": 16 * 2**20, "written_bytes": 2**21}
    table = dict(rows(summarise([run_record(2), planned, *epochs])))
    assert table["files per epoch"] == "15.0 MiB read, 1.0 MiB written (predicted 16.0 MiB and 2.0 MiB)"
    assert "files per epoch" not in dict(rows(summarise([run_record(2), epoch_record(1)])))
