"""A server made from a job, with its shard and rows from a store, computes the same as one of the embedded cluster."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import dorylus
from dorylus.graph import SparseFeatures
from dorylus.partition import save_shards
from dorylus.partition.partitioning import Partitioning
from dorylus.pools import PoolHandle, ThreadsPool
from dorylus.runtime import LocalRuntime
from dorylus.runtime.ray import NodeJob, graph_node, parameter_node
from dorylus.runtime.remote import RemoteRuntime
from in_process_servers import InProcess

HOST = "127.0.0.1"


def graph_of(form):
    graph = dorylus.communities(num_vertices=120, num_classes=3, num_features=6, average_degree=5, seed=0)
    kinds = {"features": graph.features, "labels": graph.labels}
    if form == "sparse":
        kinds["features"] = SparseFeatures.from_dense(np.where(graph.features > 1, graph.features, 0))
    if form == "multilabel":
        kinds["labels"] = np.eye(3, dtype=np.uint8)[graph.labels]
    masks = {name: getattr(graph, name) for name in ("train_mask", "val_mask", "test_mask")}
    return dorylus.Graph(graph.indptr, graph.indices, **kinds, **masks)


@pytest.fixture
def from_stores(tmp_path):
    """Makes a runtime whose servers have only the job that is sent, and two folders."""

    def make(job, pool):
        job.graph.save(tmp_path / "graph")
        save_shards(tmp_path / "shards", job.graph, Partitioning(job.cut.parts, job.cut.num_servers, "stream"))
        travels = NodeJob(
            job=replace(job, graph=None, threads=1),
            store=str(tmp_path / "graph"),
            shards=str(tmp_path / "shards"),
            make_pool=lambda *_: PoolHandle(ThreadsPool()),
        )
        graphs = InProcess(lambda server: graph_node(travels, server, HOST), job.cut.num_servers)
        parameters = InProcess(lambda server: parameter_node(travels, server, HOST), 1)
        return RemoteRuntime(job, lambda job: (graphs, parameters))

    return make


@pytest.mark.parametrize("form", ["dense", "sparse", "multilabel"])
@pytest.mark.parametrize("servers", [1, 3])
def test_servers_that_read_their_own_shards_compute_identical_losses(make_cluster, from_stores, form, servers):
    graph, cut = graph_of(form), {"servers": servers, "intervals": 2, "threads": 1}
    near, far = (make_cluster(graph, dorylus.gcn(), kind=kind, **cut) for kind in (LocalRuntime, from_stores))
    assert [far.train_epoch().loss for _ in range(4)] == [near.train_epoch().loss for _ in range(4)]
    weights, expected = far.state().weights, near.state().weights
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert (far.outputs().whole() == near.outputs().whole()).all()


def test_the_secret_of_a_run_is_never_printed():
    job = NodeJob(job=None, store="s", shards="t", make_pool=lambda *_: PoolHandle(ThreadsPool()))
    assert len(job.secret) == 32
    assert job.secret.hex() not in repr(job)
    assert str(job.secret) not in repr(job)
