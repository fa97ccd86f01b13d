import pytest
from log_of_a_run import epoch_record, evaluation_record, result_record, run_record

from dorylus.report.summary import Summary, summarise


def test_the_median_epoch_is_reported_so_that_a_slow_first_one_does_not_count():
    log = [run_record(), epoch_record(1, 9.0), epoch_record(2, 0.5), epoch_record(3, 0.6)]
    assert summarise(log).median_epoch_seconds == 0.6


def test_shares_of_task_time_sum_to_one_and_come_in_the_order_of_an_epoch():
    shares = summarise([epoch_record(1, tasks={"odd": 1.0, "WU": 1.0, "∇AV": 2.0, "GA": 4.0})]).shares
    assert shares == {"GA": 0.5, "∇AV": 0.25, "WU": 0.125, "odd": 0.125}


def test_there_are_no_shares_where_no_task_was_timed():
    assert summarise([epoch_record(1, tasks={"GA": 0.0})]).shares == {}
    assert summarise([epoch_record(1, tasks=None)]).shares == {}


def test_peak_memory_is_the_highest_ever_seen():
    low, high = epoch_record(2, memory_bytes=5), epoch_record(1, memory_bytes=9)
    assert summarise([high, low]).peak_memory_bytes == 9
    assert summarise([high, result_record(peak_memory_bytes=12)]).peak_memory_bytes == 12


def test_a_score_is_that_of_the_result_or_else_of_the_last_evaluation():
    log = [evaluation_record(10, val=0.5), evaluation_record(20, val=0.6)]
    assert summarise(log).score("val_accuracy") == 0.6
    assert summarise([*log, result_record(val_accuracy=0.55)]).score("val_accuracy") == 0.55
    assert summarise([*log, result_record(val_accuracy=None)]).score("val_accuracy") == 0.6


def test_an_empty_log_has_an_empty_summary():
    summary = summarise([])
    assert (summary.median_epoch_seconds, summary.score("test_accuracy"), summary.shares) == (None, None, {})


def test_a_resumed_run_counts_on_from_its_checkpoint():
    assert summarise([run_record(resumed_from=120)]).epoch == 120


@pytest.mark.parametrize("kind", ["spans", "checkpoint", "kind of tomorrow"])
def test_other_kinds_of_record_are_passed_over(kind):
    summary = Summary()
    summary.add({"kind": kind, "epoch": 7})
    assert summary == Summary()


def test_time_left_counts_what_happens_between_epochs_too():
    log = [run_record(10), epoch_record(1, 0.5, t=1.0), epoch_record(2, 0.5, t=4.0)]
    assert summarise(log[:2]).seconds_left is None
    assert summarise(log).seconds_left == 24.0


def test_time_left_forgets_how_fast_the_run_was_before_it_was_resumed():
    log = [run_record(10), epoch_record(1, t=1.0), epoch_record(2, t=2.0), run_record(10, resumed_from=2)]
    assert summarise(log).seconds_left is None
