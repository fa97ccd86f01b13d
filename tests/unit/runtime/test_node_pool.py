from dorylus.pools import PoolHandle, ThreadsPool
from dorylus.pools.functions.invocations import Invoked
from dorylus.runtime.graph_node import NodePool, joined_figures

ONE, LATE = (Invoked("AV", billed_ms, cold=False, bytes_in=1, bytes_out=2) for billed_ms in (3.0, 4.0))


def test_notes_of_a_pool_are_kept_until_they_are_taken_and_returned_once():
    bound = {}

    def make(host, note, invoked):
        bound.update(host=host, note=note, invoked=invoked)
        return PoolHandle(ThreadsPool(), figures=lambda: {"functions": 3}, settle=lambda: invoked(LATE))

    pool = NodePool(make, "10.0.0.7")
    assert bound["host"] == "10.0.0.7"
    bound["note"]("autotune", functions=4)
    bound["invoked"](ONE)
    news = pool.take_news()
    assert (news.notes, news.invoked) == ([("autotune", {"functions": 4})], [ONE])
    assert pool.take_news().invoked == []
    assert pool.settle().invoked == [LATE]
    assert pool.figures() == {"functions": 3}


def test_numbers_of_all_servers_are_added_and_texts_are_joined():
    each = [{"data_path": "direct", "invocations": 3}, {"data_path": "direct", "invocations": 4}]
    assert joined_figures(each) == {"data_path": "direct", "invocations": 7}
    assert joined_figures([{"data_path": "direct"}, {"data_path": "inline"}]) == {"data_path": "direct, inline"}
    assert joined_figures([{}, {}]) == {}
