import pytest

import dorylus


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=200, num_classes=3, num_features=6, average_degree=6, seed=0)


@pytest.fixture
def trainer(graph):
    """Makes trainers and closes them."""
    made = []

    def make(model=None, graph=graph, **settings):
        made.append(dorylus.Trainer(graph, model or dorylus.gcn(), **({"threads": 1, "epochs": 12} | settings)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def resumed(graph):
    """Goes on with runs, and closes them."""
    made = []

    def resume(folder, model=None, **more):
        made.append(dorylus.Trainer.resume(folder, graph, model or dorylus.gcn(), **more))
        return made[-1]

    yield resume
    for each in made:
        each.close()
