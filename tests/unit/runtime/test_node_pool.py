from dorylus.pools import PoolHandle, ThreadsPool
from dorylus.pools.functions.invocations import Invoked
from dorylus.runtime.graph_node import NodePool, joined_figures

ONE, LATE = (Invoked("AV", billed_ms, cold=False, bytes_in=1, bytes_out=2) for billed_ms in (3.0, 4.0))


def test_what_a_pool_tells_is_kept_until_it_is_asked_for_and_then_told_once():
    told = {}

    def make(host, note, invoked):
        told.update(host=host, note=note, invoked=invoked)
        return PoolHandle(ThreadsPool(), figures=lambda: {"functions": 3}, settle=lambda: invoked(LATE))

    pool = NodePool(make, "10.0.0.7")
    assert told["host"] == "10.0.0.7"
    told["note"]("autotune", functions=4)
    told["invoked"](ONE)
    news = pool.take_news()
    assert (news.notes, news.invoked) == ([("autotune", {"functions": 4})], [ONE])
    assert pool.take_news().invoked == []
    assert pool.settle().invoked == [LATE]
    assert pool.figures() == {"functions": 3}


def test_figures_of_all_servers_are_added_and_words_are_kept():
    each = [{"data_path": "direct", "invocations": 3}, {"data_path": "direct", "invocations": 4}]
    assert joined_figures(each) == {"data_path": "direct", "invocations": 7}
    assert joined_figures([{"data_path": "direct"}, {"data_path": "inline"}]) == {"data_path": "direct, inline"}
    assert joined_figures([{}, {}]) == {}
