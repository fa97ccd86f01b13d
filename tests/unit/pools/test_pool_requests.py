import pytest

from dorylus.errors import ConfigError
from dorylus.pools import FunctionSettings, PoolHandle, ThreadsPool, makers, run_pool, service_of


def make(servers=1, intervals=None, threads=None, address=None, keeps_graphs=False, **settings):
    config, work = FunctionSettings.of(**settings), {"servers": servers, "intervals": intervals, "threads": threads}
    return run_pool(config, note=print, invoked=print, address=address, keeps_graphs=keeps_graphs, **work)


def settings_of(monkeypatch, **settings):
    """The request from which a run's pool is made."""
    requests = []
    monkeypatch.setattr(makers, "make_pool", lambda request, listeners: requests.append(request) or PoolHandle(None))
    make(**settings)
    return requests[0]


@pytest.mark.parametrize(("servers", "intervals", "start"), [(1, 7, 7), (4, 7, 28), (2, 100, 200), (2, 5000, 200)])
def test_a_server_begins_with_as_many_functions_as_intervals_or_a_hundred(monkeypatch, servers, intervals, start):
    assert settings_of(monkeypatch, pool="lambda", servers=servers, intervals=intervals).start == start


def test_settings_reach_the_pool(monkeypatch):
    request = settings_of(
        monkeypatch,
        pool="http",
        function_url="http://127.0.0.1:1/",
        functions=5,
        data_path="inline",
        payload_precision="bf16",
        stream=False,
        fuse=False,
    )
    assert (request.name, request.url, request.functions, request.fuse) == ("http", "http://127.0.0.1:1/", 5, False)
    assert (request.travel.data_path, request.travel.precision, request.travel.stream) == ("inline", "bf16", False)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("rematerialize", [None, True, False])
def test_a_pool_recomputes_exactly_what_the_run_does_not_keep(monkeypatch, rematerialize, kept):
    request = settings_of(monkeypatch, pool="processes", rematerialize=rematerialize, keeps_graphs=kept)
    assert request.travel.rematerialize is not kept


@pytest.mark.parametrize(
    ("settings", "service"),
    [
        ({}, None),
        ({"pool": "processes"}, None),
        ({"pool": "lambda"}, "lambda-x86"),
        ({"pool": "http"}, "cloud-run"),
        ({"pool": "lambda", "function_service": "lambda-arm"}, "lambda-arm"),
    ],
)
def test_functions_are_billed_by_the_service_of_the_pool_unless_one_is_named(settings, service):
    assert service_of(FunctionSettings.of(**settings)) == service


def test_threads_need_no_settings():
    made = make()
    assert isinstance(made.pool, ThreadsPool)
    assert made.figures() == {}


def test_functions_behind_http_need_an_address():
    with pytest.raises(ConfigError, match="give function_url"):
        make(pool="http")
