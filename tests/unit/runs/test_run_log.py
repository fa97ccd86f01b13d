import itertools
import threading

import pytest

from dorylus.runs import MemorySink, RunLog


def ticking(*times):
    return iter(times).__next__


def test_a_record_is_stamped_with_the_seconds_since_the_run_began():
    sink = MemorySink()
    log = RunLog([sink], clock=ticking(100.0, 101.5, 103.0))
    log.write("epoch", epoch=1)
    log.write("stop", reason="epochs")
    assert sink.records == [{"kind": "epoch", "t": 1.5, "epoch": 1}, {"kind": "stop", "t": 3.0, "reason": "epochs"}]


def test_the_time_of_a_resumed_run_continues_where_it_stopped():
    sink = MemorySink()
    RunLog([sink], started_s=40.0, clock=ticking(7.0, 8.0)).write("run")
    assert sink.records[0]["t"] == 41.0


def test_every_sink_gets_every_record():
    sinks = [MemorySink(), MemorySink()]
    with RunLog(sinks) as log:
        log.write("run")
    assert [len(sink.records) for sink in sinks] == [1, 1]
    assert all(sink.closed for sink in sinks)


def test_records_of_many_threads_keep_the_order_of_their_times():
    sink = MemorySink()
    log = RunLog([sink], clock=itertools.count().__next__)
    threads = [threading.Thread(target=lambda: [log.write("epoch") for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record["t"] for record in sink.records] == list(range(1, 201))


class BrokenSink(MemorySink):
    def close(self):
        raise OSError("gone")


def test_a_sink_that_cannot_be_closed_does_not_keep_the_others_open():
    sink = MemorySink()
    with pytest.raises(OSError, match="gone"):
        RunLog([BrokenSink(), sink]).close()
    assert sink.closed


def test_closing_twice_closes_once():
    log = RunLog([BrokenSink()])
    with pytest.raises(OSError, match="gone"):
        log.close()
    log.close()


def test_the_memory_sink_picks_records_by_kind():
    sink = MemorySink()
    log = RunLog([sink])
    log.write("epoch", epoch=1)
    log.write("evaluation", epoch=1)
    assert [record["kind"] for record in sink.of_kind("evaluation")] == ["evaluation"]
