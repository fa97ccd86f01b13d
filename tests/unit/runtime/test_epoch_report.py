import json

from dorylus.pipeline import Kind, Task
from dorylus.runtime import EpochReport
from dorylus.runtime.engine import Span
from dorylus.runtime.runtime import Delivery


def span(kind, start_s, end_s, *, epoch=0, interval=0, step=0, server=0, thread=0):
    return Span(Task(epoch, 0, interval, step, kind), server, thread, start_s, end_s)


def test_time_is_added_up_by_kind_of_task():
    spans = [span(Kind.GATHER, 10.0, 10.5), span(Kind.GATHER, 10.25, 10.5), span(Kind.WEIGHT_UPDATE, 11.0, 12.0)]
    assert EpochReport(0.5, 2.0, spans).seconds_by_kind() == {"GA": 0.75, "WU": 1.0}


def test_rows_of_the_log_count_from_the_first_start_and_epochs_from_one():
    spans = [
        span(Kind.GATHER, 10.25, 10.5, interval=3, step=2, server=1, thread=1),
        span(Kind.GATHER, 10.0, 10.5, interval=1, step=2),
        span(Kind.WEIGHT_UPDATE, 11.0, 12.0, step=4, epoch=1),
    ]
    rows = EpochReport(0.5, 2.0, spans).rows()
    assert rows == [
        ["GA", 2, 3, 1, 0.25, 0.5, 1, 1],
        ["GA", 2, 1, 0, 0.0, 0.5, 0, 1],
        ["WU", 4, 0, 0, 1.0, 2.0, 0, 2],
    ]
    assert json.loads(json.dumps(rows)) == rows


def test_a_report_without_tasks_has_no_rows():
    assert EpochReport(0.0, 0.0, []).rows() == []


def busy(spans, deliveries=()):
    return EpochReport(0.0, 9.0, spans, list(deliveries)).busy_seconds


def test_a_resource_is_busy_while_at_least_one_task_is_on_it():
    overlapping = [(10.0, 12.0), (11.0, 13.0), (11.5, 11.75), (15.0, 16.0)]
    spans = [span(Kind.GATHER, *times) for times in reversed(overlapping)]
    assert busy(spans) == {"cores": 4.0, "pool": 0.0, "network": 0.0}


def test_tasks_one_right_after_the_other_are_as_long_as_both():
    assert busy([span(Kind.SCATTER, 10.0, 11.0), span(Kind.SCATTER, 11.0, 12.0)])["cores"] == 2.0


def test_dense_tasks_are_the_pools_and_sparse_ones_the_cores():
    dense = [Kind.APPLY_VERTEX, Kind.APPLY_EDGE, Kind.LOSS, Kind.GRAD_APPLY_VERTEX, Kind.GRAD_APPLY_EDGE]
    for kind in Kind:
        spent = busy([span(kind, 10.0, 11.0)])
        assert (spent["pool"], spent["cores"]) == ((1.0, 0.0) if kind in dense else (0.0, 1.0))


def test_the_network_is_busy_while_a_message_is_in_flight():
    deliveries = [Delivery(0, 1, 400, 10.0, 10.5), Delivery(1, 0, 4, 10.25, 11.0)]
    assert busy([], deliveries) == {"cores": 0.0, "pool": 0.0, "network": 1.0}


def test_missing_counts_are_empty_and_not_shared_between_reports():
    first, second = EpochReport(0.0, 0.0, []), EpochReport(0.0, 0.0, [])
    first.deliveries.append(Delivery(0, 1, 1, 0.0, 1.0))
    assert (second.deliveries, dict(second.traffic), dict(second.ages), second.waits) == ([], {}, {}, 0)
