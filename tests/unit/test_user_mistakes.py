"""Mistakes that users make through the public interface: one sentence each, with the cure and without inner names."""

import ast
import re
from pathlib import Path

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
import torch.nn.functional as f
import torch_geometric.data
import torch_geometric.nn
from torch import nn

import dorylus
from dorylus import CheckpointError, ConfigError, DataError, DorylusError, GraphError, Layer

SOURCE = Path(dorylus.__file__).parent
LONGEST = 900  # characters: a list of all settings has 800


class Forward(Layer):
    def forward(self, x):
        return x


class Wide(Layer):
    def apply_vertex(self, own, gathered):
        return torch.cat([gathered, gathered], 1)


class Dropping(Layer):
    def apply_vertex(self, own, gathered):
        return f.dropout(gathered, 0.5)


class Noisy(Layer):
    def prepare(self, x):
        return x + torch.rand_like(x)


class FromNumpy(Layer):
    def apply_vertex(self, own, gathered):
        return gathered * float(np.random.default_rng().random())


class Counting(Layer):
    calls = 0

    def apply_vertex(self, own, gathered):
        self.calls += 1
        return gathered


class Remembering(Layer):
    def apply_vertex(self, own, gathered):
        self.seen = gathered
        return gathered


class Centring(Layer):
    def apply_vertex(self, own, gathered):
        return gathered - gathered.mean(0)


class ReturnsNothing(Layer):
    def apply_vertex(self, own, gathered):
        pass


class ReturnsArray(Layer):
    def apply_vertex(self, own, gathered):
        return gathered.numpy()


class Pooling(Layer):
    def apply_vertex(self, own, gathered):
        return gathered[:1]


class WithoutInit(Layer):
    def __init__(self):
        self.width = 6


class ShortInit(Layer):
    def __init__(self, columns):
        nn.Module.__init__(self)
        self.lin = nn.Linear(columns, columns)


class Misnamed(Layer):
    reduce = "sums"


class Added(dorylus.Layer):
    reduce = "add"


class Batched(Layer):
    def __init__(self, wide, out):
        super().__init__(wide, out)
        self.norm_in = nn.BatchNorm1d(wide)


class OneArgument(Layer):
    def apply_vertex(self, gathered):
        return gathered


class Unscored(Layer):
    reduce = "softmax"

    def apply_edge(self, source, destination, weight):
        return source


class InPlace(Layer):
    def apply_vertex(self, own, gathered):
        return gathered.mul_(2)


class Double(Layer):
    def apply_vertex(self, own, gathered):
        return gathered.double()


MISTAKES = [
    # what is no graph
    ("train(None, gcn)", ConfigError, r"graph is None: load one, as in dorylus\.load\('cora'\)"),
    ("train('cora', gcn)", ConfigError, r"load it, as in dorylus\.load\('cora'\)"),
    ("train(Path('cora'), gcn)", ConfigError, r"load it, as in dorylus\.load\('cora'\)"),
    ("train(data, gcn)", ConfigError, r"make a graph of it by dorylus\.Graph\.from_pyg"),
    ("train(networkx.path_graph(4), gcn)", ConfigError, r"dorylus\.Graph\.from_networkx"),
    ("train(scipy.sparse.eye_array(4), gcn)", ConfigError, r"dorylus\.Graph\.from_scipy"),
    ("train(edges, gcn)", ConfigError, r"graph is an array: make a graph of edges by dorylus\.Graph\.from_edges"),
    ("train(gcn, graph)", ConfigError, "the graph comes first"),
    ("dorylus.plan_memory(None, gcn)", ConfigError, "graph is None"),
    ("dorylus.predict(done.model, graph)", ConfigError, "the graph comes first"),
    # what is no model
    ("train(graph, None)", ConfigError, r"model is None: use dorylus\.gcn\(hidden=16\)"),
    ("train(graph, 'gat')", ConfigError, r"use dorylus\.gat\(\)"),
    ("train(graph, dorylus.gcn)", ConfigError, r"the function gcn: call it, as in dorylus\.gcn\(hidden=16\)"),
    ("train(graph, dorylus.GCN)", ConfigError, "the class GCN: use dorylus"),
    ("train(graph, nn.Linear(6, 3))", ConfigError, r"as the bodies of a dorylus\.Layer"),
    ("train(graph, torch_geometric.nn.GCN(6, 4, 2))", ConfigError, r"Program\.from_pyg copies weights"),
    ("train(graph, dorylus.GCN(6, 3))", ConfigError, r"dorylus\.Program\(\[layer\]\)"),
    ("train(graph, [dorylus.GCN(6, 3)])", ConfigError, r"make a program of the layers"),
    ("dorylus.predict(graph, gcn)", ConfigError, r"give the trained one, result\.model"),
    ("dorylus.predict(graph, nn.Linear(6, 3))", ConfigError, "model is a Linear"),
    # settings by other names
    ("train(graph, gcn, learning_rate=0.1)", ConfigError, "it is called lr here"),
    ("train(graph, gcn, num_epochs=3)", ConfigError, "it is called epochs here"),
    ("train(graph, gcn, n_epochs=3)", ConfigError, "it is called epochs here"),
    ("train(graph, gcn, wd=3)", ConfigError, "it is called weight_decay here"),
    ("train(graph, gcn, random_state=3)", ConfigError, "it is called seed here"),
    ("train(graph, gcn, batch_size=3)", ConfigError, "one step over the whole graph, without batches.*: leave it out"),
    ("train(graph, gcn, device='cuda')", ConfigError, "uses the processor's cores: leave it out"),
    ("train(graph, gcn, hidden=16)", ConfigError, r"give it to the builder, as in dorylus\.gcn\(hidden=16\)"),
    ("train(graph, gcn, momentum=0.9)", ConfigError, r"optimizer_options=\{'momentum': 0\.9\}"),
    ("train(graph, gcn, step_size=5)", ConfigError, r"lr_schedule_options=\{'step_size': 50\}"),
    ("train(graph, gcn, callbacks=[])", ConfigError, "is called sinks here"),
    ("train(graph, gcn, verbose=True)", ConfigError, "is called progress here"),
    ("train(graph, gcn, epocs=3)", ConfigError, "did you mean 'epochs'"),
    ("dorylus.Trainer(graph, gcn, epoch=3)", ConfigError, "it is called epochs here"),
    ("dorylus.resume('done', graph, gcn, learning_rate=1)", ConfigError, "unknown setting 'learning_rate'"),
    # values of settings
    ("train(graph, gcn, epochs=0)", ConfigError, "use epochs=1 or more"),
    ("train(graph, gcn, epochs='10')", ConfigError, "epochs is a whole number"),
    ("train(graph, gcn, epochs=1.5)", ConfigError, "epochs is a whole number"),
    ("train(graph, gcn, lr='x')", ConfigError, "use lr=0.01, for instance"),
    ("train(graph, gcn, weight_decay=-1)", ConfigError, "at least 0"),
    ("train(graph, gcn, optimizer='adm')", ConfigError, "Did you mean 'adam'"),
    ("train(graph, gcn, optimizer=torch.optim.Adam(linear.parameters()))", ConfigError, "give its name, 'Adam'"),
    ("train(graph, gcn, optimizer=3)", ConfigError, "give the name of one, such as 'adam'"),
    ("train(graph, gcn, optimizer_options=0.9)", ConfigError, r"optimizer_options=\{'name': 0\.5\}"),
    ("train(graph, gcn, lr_schedule='cosine')", ConfigError, "the known ones are ConstantLR"),
    ("train(graph, gcn, loss='mse')", ConfigError, "auto, bce, cross_entropy"),
    ("train(graph, gcn, target_accuracy=80)", ConfigError, r"use target_accuracy=0\.8"),
    ("train(graph, gcn, patience=5, eval_every=0)", ConfigError, "Use eval_every=1 or more"),
    ("train(graph, gcn, servers=100)", ConfigError, "use from 1 to 60"),
    ("train(graph, gcn, intervals=1000)", ConfigError, "use at most 60"),
    ("train(graph, gcn, memory='8 gigs')", ConfigError, "Use B, kB, MB"),
    ("train(graph, gcn, pool='gpu')", ConfigError, "http, lambda"),
    ("train(graph, gcn, staleness=2)", ConfigError, "use mode='async'"),
    ("train(graph, gcn, run_dir=5)", ConfigError, "give its path"),
    ("train(graph, gcn, run_dir='done')", ConfigError, "choose another run_dir"),
    ("train(graph, gcn, sinks=[print])", ConfigError, r"sinks\[0\] is the function print.*give a list of objects with"),
    ("train(graph, gcn, sinks=print)", ConfigError, "sinks is the function print: give a list"),
    ("train(graph, gcn, progress='yes')", ConfigError, "use progress=True"),
    ("dorylus.Trainer(graph, gcn).run('x')", ConfigError, "epochs is a whole number"),
    # options of builders
    ("dorylus.gcn(hidden='16')", ConfigError, "use hidden=16"),
    ("dorylus.gcn(dropout=1)", ConfigError, r"use dropout=0\.5"),
    ("dorylus.gcn(batch_norm=True)", ConfigError, "use layer_norm=True"),
    ("dorylus.gcn(hidden_channels=16)", ConfigError, "it is called hidden here"),
    ("dorylus.gcn(n_layers=3)", ConfigError, "it is called num_layers here"),
    ("dorylus.gcn(in_channels=3)", ConfigError, "widths come from the graph: leave it out"),
    ("dorylus.gcn(lr=0.1)", ConfigError, r"give it to dorylus\.train"),
    ("dorylus.gcn(heads=3)", ConfigError, "the known ones are activation"),
    ("dorylus.gcn(16, 2, 0.5, 'relu')", ConfigError, "name the others"),
    ("dorylus.gcn(activation='rel')", ConfigError, "Did you mean 'relu'"),
    ("dorylus.gcn(hidden=[16, 16], num_layers=5)", ConfigError, "use num_layers=3"),
    ("dorylus.gat(num_heads=8)", ConfigError, "it is called heads here"),
    ("dorylus.gat(negative_slope=0.1)", ConfigError, "it is called slope here"),
    ("dorylus.sage(aggr='mean')", ConfigError, "it is called aggregator here"),
    ("dorylus.sage(aggregator='lstm')", ConfigError, "max, mean, sum"),
    # programs and layers
    ("dorylus.Program(gcn)", ConfigError, "needs no Program around it"),
    ("dorylus.Program([nn.Linear(6, 3)])", ConfigError, r"must derive from dorylus\.Layer"),
    (
        "dorylus.Program([torch_geometric.nn.GCNConv(6, 3)])",
        ConfigError,
        r"must derive from dorylus\.Layer.* Program\.from_pyg copies the weights",
    ),
    ("program(Added)", ConfigError, "unknown reduce 'add': it is called sum here"),
    ("done.model(data.x, data.edge_index)", ConfigError, r"dorylus\.predict\(graph, program\) returns its logits"),
    ("dorylus.Program([dorylus.GCN])", ConfigError, r"make one, as in GCN\(32, 8\)"),
    ("dorylus.Program([dorylus.GCN(6, 4), dorylus.GCN(5, 3)])", ConfigError, "make the two widths equal"),
    ("dorylus.GCN('6', 3)", ConfigError, "a width is a whole number"),
    ("train(graph, dorylus.Program([dorylus.GCN(5, 3)]))", ConfigError, "build the model for 6"),
    ("train(graph, dorylus.Program([dorylus.GCN(6, 4)]))", ConfigError, "build the model for 3"),
    ("train(graph, program(Forward))", ConfigError, "defines forward, which is never called: write prepare"),
    ("train(graph, program(Wide))", ConfigError, "returns 12 columns, but the layer was made for 6"),
    ("train(graph, program(Dropping))", ConfigError, "use dropout= of the layer"),
    ("train(graph, program(Noisy))", ConfigError, "prepare of layer 0 .* draws random numbers"),
    ("train(graph, program(FromNumpy))", ConfigError, "other values for the same rows when it is called again"),
    ("train(graph, program(Counting))", ConfigError, r"changes self\.calls.*keep nothing on the layer"),
    ("train(graph, program(Remembering))", ConfigError, r"changes self\.seen.*keep nothing on the layer"),
    ("train(graph, program(Centring))", ConfigError, "compute each row from that row alone"),
    ("train(graph, program(ReturnsNothing))", ConfigError, "returns None: return a tensor"),
    ("train(graph, program(ReturnsArray))", ConfigError, "returns an array: return a tensor"),
    ("train(graph, program(Pooling))", ConfigError, r"return \[8, columns\], one row for each"),
    ("dorylus.Program([WithoutInit()])", ConfigError, r"call super\(\).__init__\(in_columns, out_columns\)"),
    ("dorylus.Program([ShortInit(6)])", ConfigError, r"call super\(\).__init__\(in_columns, out_columns\)"),
    ("program(Misnamed)", ConfigError, "Did you mean 'sum'"),
    ("program(Batched)", ConfigError, r"LayerNorm \(layer_norm=True\)"),
    ("train(graph, program(OneArgument))", ConfigError, "apply_vertex of layer 0 .* takes 2 positional arguments"),
    ("train(graph, program(Unscored))", ConfigError, r"must return \(message, score\)"),
    ("train(graph, program(InPlace))", ConfigError, "return a new tensor"),
    ("train(graph, program(Double))", ConfigError, r"call \.float\(\) on what it returns"),
    # graphs
    ("from_edges(edges)", GraphError, r"Graph\.from_edges\(\*edge_index\)"),
    ("from_edges(edges[0], edges[1][:5])", GraphError, "Give one of each per edge"),
    ("from_edges(edges[0].astype(float), edges[1])", GraphError, "Convert it with"),
    ("from_edges(-edges[0], edges[1])", GraphError, "Number the vertices from 0, or drop the edge"),
    ("from_edges(edges[0], edges[1], '60')", GraphError, "give one, such as 60, or leave it out"),
    ("from_edges(edges[0], edges[1], 60.5)", GraphError, "num_vertices is a whole number"),
    ("from_edges(edges[0], edges[1], directed=True)", GraphError, "give undirected=False"),
    ("from_edges(edges[0], edges[1], x=graph.features)", GraphError, "it is called features here"),
    ("from_edges(edges[0], edges[1], y=graph.labels)", GraphError, "it is called labels here"),
    ("labelled(labels=graph.labels.astype(float))", GraphError, "They must be whole numbers"),
    ("labelled(labels=graph.labels.astype(str))", GraphError, "They must be whole numbers"),
    ("labelled(labels=graph.labels[:5])", GraphError, "Give one per vertex"),
    ("labelled(labels=graph.labels - 5)", GraphError, "there are 0 classes.*Renumber the labels"),
    (
        "train(labelled(labels=np.eye(3)[graph.labels]), gcn)",
        GraphError,
        r"give class numbers, labels\.argmax\(axis=1\)",
    ),
    ("labelled(train_mask=graph.train_mask[:5])", GraphError, r"A mask is bool of shape \[60\]"),
    ("labelled(train_mask=np.arange(5))", GraphError, r"mask\[numbers\] = True"),
    ("labelled(features=graph.features[:5])", GraphError, r"They must have shape \[60, columns\]"),
    ("labelled(features=graph.features * np.nan)", GraphError, "replace the value"),
    ("labelled(features='x.npy')", GraphError, "Convert it to float32 first"),
    ("train(labelled(train_mask=None), gcn)", GraphError, r"mark at least one .* or split= to Graph\.from_tables"),
    ("train(labelled(), gcn, patience=3)", ConfigError, r"empty val_mask: mark .* split= of Graph\.from_tables"),
    ("train(labelled(features=None), gcn)", GraphError, "give features= to Graph.from_edges"),
    # converters, files, results
    ("dorylus.Graph.from_pyg(torch_geometric.data.HeteroData())", DataError, r"give data\.to_homogeneous\(\)"),
    ("dorylus.Graph.from_pyg([data])", DataError, r"of a data set, dataset\[0\].*given a list"),
    ("dorylus.Graph.from_pyg(None)", DataError, "given None: give one"),
    ("dorylus.Graph.from_pyg(turned)", DataError, r"its shape is \[2, edges\]: give edge_index\.t\(\)"),
    ("dorylus.Graph.from_networkx(data)", DataError, r"given a Data: use Graph\.from_pyg"),
    ("dorylus.Graph.from_scipy(np.eye(4))", DataError, r"such as scipy\.sparse\.csr_array\(matrix\)"),
    ("dorylus.Graph.from_dgl(data)", DataError, r"use Graph\.from_pyg"),
    ("dorylus.Graph.from_ogb(data)", DataError, r"use Graph\.from_pyg"),
    ("dorylus.load('coraa')", DataError, "Did you mean 'cora'"),
    ("dorylus.load(Path('missing.npz'))", DataError, "there is no file or folder missing.npz"),
    ("dorylus.load(5)", ConfigError, "give one, such as 'cora'"),
    ("dorylus.communities(num_vertices='5')", ConfigError, "use num_vertices=10000"),
    ("dorylus.communities(average_degree='5')", ConfigError, "average_degree is a number"),
    ("dorylus.Graph.open(None)", ConfigError, "path is None"),
    ("graph.save(None)", ConfigError, "path is None"),
    ("done.predict(graph)", ConfigError, r"another graph by graph=: predict\('classes', graph=graph\)"),
    ("done.predict('labels')", ConfigError, "classes, embeddings, logits"),
    ("done.predict('embeddings', layer='x')", ConfigError, "0 to 0 or counted back"),
    ("done.predict(out='scores.txt')", ConfigError, "ends in .npy or .parquet"),
    ("done.predict(out='missing/scores.npy')", ConfigError, "the folder missing does not exist"),
    ("dorylus.resume(None)", ConfigError, "run_dir is None"),
    ("dorylus.resume('missing')", ConfigError, "give the folder of a run"),
    ("dorylus.resume('done', graph, gcn, lr=0.1)", ConfigError, "cannot change when the run is resumed"),
    (
        "dorylus.resume('done', graph, dorylus.gcn(hidden=5))",
        CheckpointError,
        "Build the model the checkpoint was made",
    ),
]


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the mistakes are made with, in a folder with a finished run."""
    graph = dorylus.communities(num_vertices=60, num_classes=3, num_features=6, average_degree=4)
    edges, gcn = np.stack(graph.edge_list()), dorylus.gcn(hidden=4)
    folder = tmp_path_factory.mktemp("mistakes")

    def labelled(**changes):
        attributes = {"features": graph.features, "labels": graph.labels, "train_mask": graph.train_mask}
        return dorylus.Graph.from_edges(edges[0], edges[1], **(attributes | changes))

    return {
        **globals(),
        "Path": Path,
        "networkx": networkx,
        "scipy": scipy,
        "torch_geometric": torch_geometric,
        "folder": folder,
        "graph": graph,
        "edges": edges,
        "gcn": gcn,
        "data": graph.to_pyg(),
        "turned": graph.to_pyg().update({"edge_index": graph.to_pyg().edge_index.t()}),
        "train": dorylus.train,
        "from_edges": dorylus.Graph.from_edges,
        "labelled": labelled,
        "linear": nn.Linear(1, 1),
        "program": lambda layer: dorylus.Program([layer(6, 6), dorylus.GCN(6, 3)]),
        "done": dorylus.train(graph, gcn, epochs=1, run_dir=folder / "done"),
    }


def inner_names():
    """Names of classes in src that no user types."""
    classes = {
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    return classes - set(dorylus.__all__) - {"MemorySink", "Edges", "Rows", "Data"}


INNER_NAMES = inner_names()


@pytest.mark.parametrize(("code", "error", "says"), MISTAKES, ids=[code for code, *_ in MISTAKES])
def test_a_mistake_is_answered_by_one_sentence_with_the_cure(names, monkeypatch, code, error, says):
    monkeypatch.chdir(names["folder"])
    before = sorted(path.name for path in names["folder"].iterdir())
    with pytest.raises(DorylusError) as caught:
        eval(code, names)
    message = str(caught.value)
    assert type(caught.value) is error, message
    assert re.search(says, message), message
    assert "\n" not in message
    assert len(message) <= LONGEST
    assert message[-1] in ".?"
    words = set(re.findall(r"\w+", message))
    assert not words & INNER_NAMES
    assert not re.search(r"\b_[a-z]| at 0x|dorylus\.[a-z]+\.[a-z]", message), message
    assert sorted(path.name for path in names["folder"].iterdir()) == before


def test_there_are_inner_names_to_look_for():
    assert {"Recipe", "RunRecords", "TerminalProgress", "GraphServer"} <= INNER_NAMES


class Cached(Layer):
    """Computes something once and keeps it: no later call differs."""

    def apply_vertex(self, own, gathered):
        if "scale" not in vars(self):
            self.scale = torch.tensor(2.0)
        return gathered * self.scale


def test_what_a_body_computes_once_is_no_state_between_calls(names):
    assert len(dorylus.train(names["graph"], names["program"](Cached), epochs=1).losses) == 1


def test_one_hot_labels_may_be_meant_as_several(names):
    graph = names["labelled"](labels=np.eye(3)[names["graph"].labels])
    assert dorylus.train(graph, names["gcn"], epochs=1, loss="bce").config.loss == "bce"


def test_checks_of_bodies_leave_the_global_generator_alone(names):
    program = names["program"](Cached)
    before = torch.get_rng_state()
    dorylus.train(names["graph"], program, epochs=1)
    assert torch.equal(before, torch.get_rng_state())
