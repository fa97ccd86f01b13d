"""Servers that do not come back: the trainer continues with fewer, or saves the run and reports how to resume it."""

from functools import partial

import pytest

import dorylus
from dorylus.errors import ConfigError
from dorylus.pools import ThreadsPool
from dorylus.report.closing_table import rows
from dorylus.report.summary import summarise
from dorylus.runtime.remote import RemoteRuntime
from dorylus.runtime.runtime import NotRevivedError, ServersLostError
from dorylus.runtime.server_process import ServerProcess
from in_process_servers import in_process_servers

SETTINGS = {"servers": 3, "intervals": 2, "threads": 1, "epochs": 8, "eval_every": 0, "cluster": "ray"}


@pytest.fixture
def graph():
    return dorylus.communities(num_vertices=150, num_classes=3, num_features=6, average_degree=5, seed=0)


def not_there(servers):
    if None in servers.nodes:
        raise NotRevivedError("graph server 1 is not there.")


class Placed(list):
    """Graph servers, and the numbers of servers that there is no room for."""

    too_many = ()


@pytest.fixture
def placed(monkeypatch):
    """The graph servers that were placed, once for every number of servers; one that is killed stays so."""
    made = Placed()

    def place(job):
        if job.cut.num_servers in made.too_many:
            raise ConfigError(f"{job.cut.num_servers} graph servers do not fit.")
        graphs, parameters = in_process_servers(job, ThreadsPool())
        graphs.revive = partial(not_there, graphs)
        made.append(graphs)
        return graphs, parameters

    def make(job, config, given, records, fewer_servers):
        return RemoteRuntime(job, place, fewer_servers=fewer_servers, note=records.note_servers)

    monkeypatch.setattr("dorylus.training.trainer.make_runtime", make)
    monkeypatch.setattr("dorylus.training.trainer.check_cluster", lambda config, pool: config)
    return made


def run_that_loses_a_server(graph, placed, sinks=(), **more):
    with dorylus.Trainer(graph, dorylus.gcn(dropout=0.5), sinks=sinks, **SETTINGS, **more) as trainer:
        trainer.run(epochs=3)
        placed[0].kill(1)
        return trainer.run().result()


class Kept(list):
    def write(self, record):
        self.append(record)

    def close(self):
        pass


def test_an_elastic_run_continues_with_fewer_servers_to_the_same_result(graph, placed):
    log = Kept()
    found = run_that_loses_a_server(graph, placed, [log], elastic=True)
    assert [len(graphs) for graphs in placed] == [3, 2]
    expected = dorylus.train(graph, dorylus.gcn(dropout=0.5), **SETTINGS)
    assert found.config.servers == 2
    assert found.losses == pytest.approx(expected.losses, abs=1e-5)
    assert [each["servers"] for each in log if each.get("what") == "shrunk"] == [2]


def test_an_elastic_run_continues_with_as_many_servers_as_there_is_room_for(graph, placed):
    log = Kept()
    placed.too_many = (2,)
    result = run_that_loses_a_server(graph, placed, [log], elastic=True)
    assert [len(graphs) for graphs in placed] == [3, 1]
    assert (result.config.servers, len(result.losses)) == (1, 8)
    events = [(each["what"], each["servers"]) for each in log if each.get("what") in ("shrunk", "no room")]
    assert events == [("shrunk", 2), ("no room", 2), ("shrunk", 1)]


class KillsAfter(Kept):
    """A sink that kills a server as soon as an epoch is done: the next step after it detects the loss."""

    def __init__(self, placed, epoch):
        super().__init__()
        self._placed, self._epoch = placed, epoch

    def write(self, record):
        super().write(record)
        if record["kind"] == "epoch" and record["epoch"] == self._epoch:
            self._placed[0].kill(1)


@pytest.mark.parametrize("epoch", [4, 8])
def test_a_server_lost_before_an_evaluation_costs_no_epoch_and_no_evaluation(graph, placed, epoch):
    log = KillsAfter(placed, epoch)
    settings = {**SETTINGS, "eval_every": 4, "elastic": True}
    with dorylus.Trainer(graph, dorylus.gcn(dropout=0.5), sinks=[log], **settings) as trainer:
        result = trainer.run().result()
    assert [record["epoch"] for record in log if record["kind"] == "epoch"] == list(range(1, 9))
    assert [record["epoch"] for record in log if record["kind"] == "evaluation"] == [4, 8]
    assert result.config.servers == 2


def test_a_server_lost_before_the_result_costs_nothing_either(graph, placed):
    with dorylus.Trainer(graph, dorylus.gcn(dropout=0.5), elastic=True, **SETTINGS) as trainer:
        trainer.run()
        placed[0].kill(2)
        result = trainer.result()
    assert result.config.servers == 2
    assert len(result.losses) == 8


def test_the_memory_that_only_the_closing_evaluation_needs_is_in_the_result_and_in_the_table(
    graph, placed, monkeypatch
):
    peak, outputs = [1 << 30], ServerProcess.outputs

    def evaluated(process, *arguments):
        peak[0] = 3 << 30
        return outputs(process, *arguments)

    monkeypatch.setattr(ServerProcess, "outputs", evaluated)
    monkeypatch.setattr("dorylus.process_memory.peak_bytes", lambda: peak[0])
    log = Kept()
    with dorylus.Trainer(graph, dorylus.gcn(), sinks=[log], **SETTINGS) as trainer:
        trainer.run()
        *_, last = (record for record in log if record["kind"] == "epoch")
        assert {each["peak_memory_bytes"] for each in last["servers"]} == {1 << 30}
        assert trainer.result().server_peak_memory_bytes == [3 << 30] * 3
    assert dict(rows(summarise(log)))["peak memory"].startswith("3.00 GiB on a graph server at most")


def test_a_run_that_is_not_elastic_is_saved_and_reports_how_to_resume(graph, placed, tmp_path):
    with pytest.raises(ServersLostError, match=r"The run is saved after epoch 3: .* dorylus resume"):
        run_that_loses_a_server(graph, placed, run_dir=tmp_path / "run")
    resumed = dorylus.resume(tmp_path / "run", graph, dorylus.gcn(dropout=0.5), servers=2)
    assert len(resumed.losses) == 8


def test_a_pool_of_this_process_is_refused_with_remote_servers(graph):
    with pytest.raises(ConfigError, match="give the name of a pool"):
        dorylus.Trainer(graph, dorylus.gcn(), pool=ThreadsPool(), cluster="ray")


def test_an_elastic_run_without_remote_servers_is_refused(graph):
    with pytest.raises(ConfigError, match="whose servers cannot be lost"):
        dorylus.Trainer(graph, dorylus.gcn(), elastic=True)


def test_an_address_without_a_cluster_is_refused(graph):
    with pytest.raises(ConfigError, match="use cluster='ray'"):
        dorylus.Trainer(graph, dorylus.gcn(), address="10.0.0.1:6379")
