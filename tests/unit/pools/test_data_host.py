import socket

import pytest

import dorylus
from dorylus.errors import ConfigError
from dorylus.pools import FunctionSettings
from dorylus.pools.makers import check_data_host

NOT_OURS = "203.0.113.9"  # an address for examples: no machine has it


def check(**settings):
    check_data_host(FunctionSettings.of(**{"pool": "processes", **settings}))


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("0.0.0.0", "that address cannot be dialled"),
        ("the-server", "is no address"),
        ("::1", "is no address"),
        (NOT_OURS, "this process cannot listen there"),
    ],
)
def test_a_host_that_functions_cannot_dial_is_refused_with_the_cure(host, why):
    with pytest.raises(ConfigError, match=rf"data_host=.*{why}.*this machine's IPv4 address"):
        check(data_host=host)


def test_the_message_names_the_address_once():
    with pytest.raises(ConfigError) as caught:
        check(data_host=NOT_OURS)
    assert str(caught.value).count(NOT_OURS) == 1


def test_ports_in_use_are_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for first in (port, port - 1):  # rows, weights
            with pytest.raises(ConfigError, match="cannot listen there"):
                check(data_port=first)


def test_free_ports_are_accepted_and_left_free():
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    try:
        check(data_port=port)
    except ConfigError:
        pytest.skip("another process took the port meanwhile")
    for each in (port, port + 1):
        with socket.create_server(("127.0.0.1", each)) as listening:
            assert listening.getsockname()[1] == each


@pytest.mark.parametrize("settings", [{"data_path": "inline"}, {"pool": "threads"}], ids=str)
def test_the_host_is_checked_only_where_functions_dial(settings):
    with pytest.raises(ConfigError):
        check(data_host=NOT_OURS)
    assert check(data_host=NOT_OURS, **settings) is None


def test_a_run_is_refused_before_it_writes_anything(tmp_path):
    graph = dorylus.communities(200, num_classes=2, num_features=4, seed=0)
    with pytest.raises(ConfigError, match="data_host"):
        dorylus.train(graph, dorylus.gcn(), pool="processes", data_host=NOT_OURS, run_dir=tmp_path / "run")
    assert not list(tmp_path.iterdir())
