"""Dense tasks on functions give the losses of threads: every service, both data paths, three models, on Pubmed."""

import sys
from functools import cache

import pytest

import dorylus
from dorylus.functions.deploy.local import LocalFunctions
from dorylus.pools.aws_lambda import LambdaInvoker
from dorylus.runs import MemorySink
from functions_bench.runs import MODELS, model, needs_pubmed, pubmed
from functions_bench.services import http_server, invoked_by

pytestmark = [
    needs_pubmed,
    pytest.mark.skipif(sys.platform != "linux", reason="functions run on Linux"),
    pytest.mark.timeout(240),
]

SETTINGS = {"servers": 2, "intervals": 2, "mode": "pipe", "epochs": 2, "eval_every": 0, "seed": 5, "deadline_s": 120}
TOLERANCE = 1e-4
LONG = {**SETTINGS, "epochs": 60, "weight_decay": 5e-4, "seed": 2}
HALF_A_POINT = 0.005


@pytest.fixture(scope="module")
def stand_in():
    with LocalFunctions() as functions:
        yield functions


@pytest.fixture
def lambda_local(stand_in):
    """All runs share one stand-in of Lambda; each has its own connections."""
    with invoked_by("lambda-local", lambda: LambdaInvoker(stand_in.access, stand_in.config.name)):
        yield {"pool": "lambda-local"}


@pytest.fixture(scope="module")
def http():
    with http_server() as server:
        yield {"pool": "http", "function_url": server.url}


@pytest.fixture
def processes():
    return {"pool": "processes"}


@pytest.fixture(params=["lambda_local", "http", "processes"])
def service(request):
    return request.getfixturevalue(request.param)


@cache
def on_threads(name):
    return dorylus.train(pubmed(), model(name), **SETTINGS)


@pytest.mark.parametrize("path", ["direct", "inline"])
@pytest.mark.parametrize("name", MODELS)
def test_a_run_gives_the_losses_of_threads(service, name, path):
    result = dorylus.train(pubmed(), model(name), data_path=path, functions=4, **service, **SETTINGS)
    assert result.losses == pytest.approx(on_threads(name).losses, abs=TOLERANCE)
    assert result.pool["data_path"] == path
    assert result.pool["invocations"] >= result.pool["calls"] > 0


def test_lambda_local_needs_no_setting_but_the_name_of_the_pool():
    log = MemorySink()
    result = dorylus.train(pubmed(), model("gcn"), pool="lambda-local", sinks=[log], **SETTINGS)
    assert result.losses == pytest.approx(on_threads("gcn").losses, abs=TOLERANCE)
    reports = [record for record in log.records if record["kind"] == "pool" and record["what"] == "data_path"]
    assert [(each["path"], each["why"]) for each in reports] == [("direct", "a function reached our data ports")]


def test_bounded_staleness_reaches_the_accuracy_of_the_exact_pipeline(lambda_local):
    exact = dorylus.train(pubmed(), model("gcn"), **LONG)
    asynchronous = {**LONG, "mode": "async", "staleness": 1}
    stale = dorylus.train(pubmed(), model("gcn"), functions=4, **lambda_local, **asynchronous)
    assert stale.metrics["test_accuracy"] >= exact.metrics["test_accuracy"] - HALF_A_POINT
    assert sum(count for age, count in stale.ages.items() if age > 0) > 0  # or nothing was stale
