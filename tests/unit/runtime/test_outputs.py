import numpy as np

from dorylus.runtime import Outputs


def test_the_whole_output_has_every_block_at_its_vertices():
    rows = np.random.default_rng(0).random((10, 3), np.float32)
    order = np.random.default_rng(1).permutation(10).astype(np.int32)
    computed = []

    def blocks():
        reused = np.empty((4, 3), np.float32)  # valid until the next block is requested, and no longer
        for part in (order[:4], order[4:8], order[8:], order[:0]):
            computed.append(len(part))
            reused[: len(part)] = rows[part]
            yield part, reused[: len(part)]

    outputs = Outputs(10, 3, blocks)
    assert not computed  # nothing is computed before the first access
    for _ in range(2):
        found = outputs.whole()
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, rows)
    assert computed == [4, 4, 2, 0] * 2


def test_outputs_without_vertices_have_no_rows():
    assert Outputs(0, 5, lambda: iter(())).whole().shape == (0, 5)
