import json
import random
import re
from xml.etree import ElementTree

import pytest
from log_of_a_run import GRAPH, cluster_run_record, epoch_record, run_record, spans_record

from dorylus.errors import ConfigError
from dorylus.report.timelines import LEFT, RIGHT, WIDTH, perfetto_timeline, svg_timeline

SVG = "{http://www.w3.org/2000/svg}"
GATHER = ("GA", 3, 0, 0.0, 0.25, 0, 1)
UPDATE = ("WU", 3, 1, 0.25, 0.5, 1, 1)


def drawn(*records, epochs=None):
    """The picture, parsed: an SVG that does not stand as XML fails here."""
    return ElementTree.fromstring(svg_timeline([cluster_run_record(), *records], epochs))


def titles(root):
    return [title.text for title in root.iter(f"{SVG}title")]


def texts(root):
    return [text.text for text in root.iter(f"{SVG}text")]


def boxes(root):
    """{title: (left, width)} of every task."""
    found = {}
    for path in root.iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is not None:
            left, width = re.match(r"M([\d.]+) 0h([\d.]+)", path.get("d")).groups()
            found[title.text] = float(left), float(width)
    return found


def test_every_task_is_a_box_with_a_description():
    assert titles(drawn(spans_record(1, GATHER, UPDATE))) == [
        "GA · interval 3 · epoch 1 · 250 ms",
        "WU · interval 3 · epoch 1 · 250 ms",
    ]


def test_a_box_is_placed_at_its_time():
    middle = (WIDTH - LEFT - RIGHT) / 2
    assert boxes(drawn(spans_record(1, GATHER, UPDATE))) == {
        "GA · interval 3 · epoch 1 · 250 ms": (LEFT, middle),
        "WU · interval 3 · epoch 1 · 250 ms": (LEFT + middle, middle),
    }


def test_there_is_a_lane_for_every_server_and_thread():
    both = [("GA", k, thread, 0.0, 0.5, server, 1) for k, (server, thread) in enumerate([(0, 0), (0, 1), (2, 1)])]
    found = texts(drawn(spans_record(1, *both)))
    assert [text for text in found if text.startswith(("server", "thread"))] == [
        "server 0", "thread 0", "thread 1", "server 2", "thread 1",
    ]  # fmt: skip


def test_tasks_of_one_thread_that_a_pool_has_at_a_time_do_not_hide_each_other():
    apart = drawn(spans_record(1, ("AV", 0, 0, 0.0, 0.5, 0, 1), ("AV", 1, 0, 0.5, 1.0, 0, 1)))
    at_a_time = drawn(spans_record(1, ("AV", 0, 0, 0.0, 0.75, 0, 1), ("AV", 1, 0, 0.25, 1.0, 0, 1)))
    lanes = [len(list(root.iter(f"{SVG}g"))) for root in (apart, at_a_time)]
    assert lanes == [1, 2]


def test_the_interval_is_written_where_it_fits():
    long, short = ("GA", 11, 0, 0.0, 1.0, 0, 1), ("AV", 12, 0, 1.0, 1.001, 0, 1)
    found = texts(drawn(spans_record(1, long, short)))
    assert "11" in found
    assert "12" not in found


def test_epochs_follow_each_other_on_the_clock_of_the_run():
    first, second = spans_record(1, GATHER, t=1.0), spans_record(2, ("GA", 3, 0, 0.0, 0.25, 0, 2), t=1.75)
    (left_1, width_1), (left_2, _) = boxes(drawn(first, second)).values()
    assert left_2 - left_1 == pytest.approx(3 * width_1, abs=0.2)


def test_epochs_have_different_shades_and_the_legend_explains_them():
    root = drawn(*(spans_record(k, ("GA", 3, 0, 0.0, 0.5, 0, k)) for k in (1, 2, 3, 4)))
    classes = [path.get("class") for path in root.iter(f"{SVG}path") if path.find(f"{SVG}title") is not None]
    assert [each.split()[1] for each in classes] == ["e0", "e1", "e2", "e0"]
    assert [text for text in texts(root) if text.startswith("epoch")] == ["epochs 1, 4", "epoch 2", "epoch 3"]


def test_samples_of_later_epochs_are_drawn_where_they_are_chosen():
    records = [spans_record(k, ("GA", 3, 0, 0.0, 0.5, 0, k)) for k in (1, 2, 4, 8)]
    assert [title.split(" · ")[2] for title in titles(drawn(*records))] == ["epoch 1", "epoch 2"]
    assert [title.split(" · ")[2] for title in titles(drawn(*records, epochs=[8]))] == ["epoch 8"]


def test_the_legend_lists_the_traced_kinds_in_the_order_of_an_epoch():
    odd = ("tomorrow's", 3, 0, 0.5, 1.0, 0, 1)
    found = texts(drawn(spans_record(1, odd, UPDATE, GATHER)))
    assert found[1:4] == ["GA", "WU", "tomorrow's"]


def test_one_epoch_may_be_chosen_whenever_its_tasks_ran():
    ahead = ("GA", 5, 0, 0.25, 0.5, 0, 2)
    records = [spans_record(1, GATHER, ahead), spans_record(2, ("WU", 5, 0, 0.0, 0.25, 0, 2))]
    assert titles(drawn(*records, epochs=[2])) == [
        "GA · interval 5 · epoch 2 · 250 ms",
        "WU · interval 5 · epoch 2 · 250 ms",
    ]


def test_the_picture_is_named_for_the_run():
    assert texts(drawn(spans_record(1, GATHER)))[0] == (
        "gcn on cora, 4 graph servers, 2 parameter servers, async with staleness 1: epoch 1"
    )
    single = ElementTree.fromstring(svg_timeline([run_record(graph=GRAPH | {"name": "<&>"}), spans_record(1, GATHER)]))
    assert texts(single)[0] == "gcn on <&>, 1 graph server, pipe: epoch 1"


def test_a_picture_follows_light_and_dark_and_loads_nothing():
    text = svg_timeline([cluster_run_record(), spans_record(1, GATHER)])
    assert "prefers-color-scheme:dark" in text
    assert re.findall(r"(?:href|src|url)\W", text) == []


def test_the_axis_has_round_numbers():
    found = texts(drawn(spans_record(1, ("GA", 3, 0, 0.0, 0.033, 0, 1))))
    assert [text for text in found if text == "0" or text.endswith("ms")] == [
        "0", "5 ms", "10 ms", "15 ms", "20 ms", "25 ms", "30 ms",
    ]  # fmt: skip


def test_a_log_without_traced_tasks_is_refused_with_the_cure():
    with pytest.raises(ConfigError, match="trace_epochs=1"):
        svg_timeline([run_record(), epoch_record(1)], None)


def test_an_epoch_that_was_not_traced_is_refused_with_those_that_were():
    with pytest.raises(ConfigError, match=r"no tasks of epoch 7, but of 1, 2: choose among those"):
        svg_timeline([run_record(), spans_record(1, GATHER), spans_record(2, ("GA", 3, 0, 0.0, 0.5, 0, 2))], [7])


def trace(*records, epochs=None):
    """The events of a trace, after a check of what the Trace Event Format asks of each."""
    content = json.loads(perfetto_timeline([cluster_run_record(), *records], epochs))
    assert content["displayTimeUnit"] == "ms"
    for event in content["traceEvents"]:
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is type(event["tid"]) is int
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
        else:
            assert event["ph"] == "X"
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert isinstance(event["cat"], str)
            assert isinstance(event["args"], dict)
    return content["traceEvents"]


def named(events, kind):
    return [(event["pid"], event["tid"], event["args"]["name"]) for event in events if event["name"] == kind]


def test_a_trace_has_a_process_for_every_server_and_a_track_for_every_thread():
    both = [("GA", k, thread, 0.0, 0.5, server, 1) for k, (server, thread) in enumerate([(0, 0), (0, 1), (2, 1)])]
    events = trace(spans_record(1, *both))
    assert named(events, "process_name") == [(1, 0, "run"), (2, 0, "server 0"), (4, 0, "server 2")]
    assert named(events, "thread_name")[1:] == [(2, 0, "thread 0"), (2, 1, "thread 1"), (4, 0, "thread 1")]


def test_a_trace_has_tasks_in_words_and_microseconds_and_all_epochs():
    events = trace(spans_record(1, GATHER, t=1.0), epoch_record(1, seconds=0.5, t=1.0), epoch_record(2, t=1.5))
    tasks = [event for event in events if event["cat" if event["ph"] == "X" else "ph"] == "GA"]
    assert [(task["name"], task["ts"], task["dur"]) for task in tasks] == [("gather", 0.75e6, 0.25e6)]
    assert tasks[0]["args"] == {"interval": 3, "epoch": 1}
    epochs = [(event["name"], event["ts"], event["dur"]) for event in events if event.get("cat") == "epoch"]
    assert epochs == [("epoch 1", 0.5e6, 0.5e6), ("epoch 2", 1e6, 0.5e6)]


def test_tasks_of_one_track_of_a_trace_never_overlap():
    rng = random.Random(0)
    starts = [(rng.uniform(0, 1), rng.uniform(0, 0.2)) for _ in range(200)]
    spans = [("AV", k, k % 2, start, start + took, 0, 1) for k, (start, took) in enumerate(starts)]
    ends = {}
    for event in sorted(
        (each for each in trace(spans_record(1, *spans, t=2.0)) if each["ph"] == "X"), key=lambda e: e["ts"]
    ):
        track = event["pid"], event["tid"]
        assert event["ts"] >= ends.get(track, 0.0) - 1e-6
        ends[track] = event["ts"] + event["dur"]
    assert len(ends) > 2


def test_a_trace_of_chosen_epochs_holds_no_others():
    records = [spans_record(1, GATHER), spans_record(2, ("GA", 3, 0, 0.0, 0.25, 0, 2))]
    assert [event["args"]["epoch"] for event in trace(*records, epochs=[2]) if event.get("cat") == "GA"] == [2]


def test_a_name_with_control_characters_leaves_the_picture_whole():
    graph = GRAPH | {"name": "\x1b[31mred\0\n"}
    text = svg_timeline([run_record(graph=graph), spans_record(1, ("G\x07", 3, 0, 0.0, 0.25, 0, 1))])
    root = ElementTree.fromstring(text)
    assert "�[31mred��" in root.get("aria-label")
    assert titles(root) == ["G� · interval 3 · epoch 1 · 250 ms"]
