import pytest

from dorylus.runtime.ray import share_of


@pytest.mark.parametrize(
    ("cores", "servers", "threads"),
    [
        ([4, 4, 4], 3, 4),
        ([4, 4, 4], 4, 2),
        ([8, 2], 2, 4),  # both on the bigger node, rather than one core wasted for two
        ([2], 2, 1),
        ([2], 5, 1),  # too many: refused later, with what there is
        ([1, 8, 8], 2, 8),  # a head that is kept free of work
        ([], 1, 1),
    ],
)
def test_servers_share_the_cores_equally_and_none_is_left_without(cores, servers, threads):
    assert share_of(cores, servers) == threads
