import numpy as np

from dorylus.runtime import Outputs


def test_the_whole_puts_every_block_where_its_vertices_are():
    rows = np.random.default_rng(0).random((10, 3), np.float32)
    order = np.random.default_rng(1).permutation(10).astype(np.int32)
    asked = []

    def blocks():
        reused = np.empty((4, 3), np.float32)  # holds until the next block is asked for, and no longer
        for part in (order[:4], order[4:8], order[8:], order[:0]):
            asked.append(len(part))
            reused[: len(part)] = rows[part]
            yield part, reused[: len(part)]

    outputs = Outputs(10, 3, blocks)
    assert not asked  # nothing is made before somebody looks
    for _ in range(2):
        found = outputs.whole()
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, rows)
    assert asked == [4, 4, 2, 0] * 2


def test_nobody_has_no_rows():
    assert Outputs(0, 5, lambda: iter(())).whole().shape == (0, 5)
