from hypothesis import given
from hypothesis import strategies as st

from dorylus.servers.parameter.parameter_servers import slice_parameters

SIZES = st.dictionaries(st.text("abc.", min_size=1, max_size=4), st.integers(0, 1000), max_size=12)


@given(SIZES, st.integers(1, 6))
def test_every_parameter_has_one_owner_and_slices_keep_the_programs_order(sizes, num_servers):
    slices = slice_parameters(sizes, num_servers)
    assert len(slices) == num_servers
    assert sorted(name for each in slices for name in each) == sorted(sizes)
    order = list(sizes)
    assert all(each == sorted(each, key=order.index) for each in slices)


@given(SIZES, st.integers(1, 6))
def test_no_server_has_more_than_its_share_and_one_parameter(sizes, num_servers):
    loads = [sum(sizes[name] for name in each) for each in slice_parameters(sizes, num_servers)]
    assert max(loads) <= sum(sizes.values()) / num_servers + max(sizes.values(), default=0)


def test_the_largest_parameters_go_to_different_servers():
    sizes = {"conv1.bias": 16, "conv1.weight": 22928, "conv2.bias": 7, "conv2.weight": 112}
    assert slice_parameters(sizes, 2) == [["conv1.weight"], ["conv1.bias", "conv2.bias", "conv2.weight"]]


def test_servers_beyond_the_number_of_parameters_get_none():
    assert slice_parameters({"a": 2, "b": 3}, 4) == [["b"], ["a"], [], []]
    assert slice_parameters({}, 2) == [[], []]


def test_one_server_owns_all():
    assert slice_parameters({"b": 1, "a": 5}, 1) == [["b", "a"]]
