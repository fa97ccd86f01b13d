import threading

import numpy as np

from dorylus.functions.direct_path import Links, WarmWeights


class Fetches:
    def __init__(self):
        self.requests = []

    def __call__(self, names):
        self.requests.append(list(names))
        return {name: np.ones(1) for name in names}


def test_only_weights_not_here_yet_are_fetched():
    warm, fetch = WarmWeights(), Fetches()
    warm.get("v1", ["weight.a"], fetch)
    assert set(warm.get("v1", ["weight.a", "weight.b"], fetch)) == {"weight.a", "weight.b"}
    warm.get("v1", ["weight.b"], fetch)
    assert fetch.requests == [["weight.a"], ["weight.b"]]


def test_the_version_used_longest_ago_is_forgotten_first():
    warm, fetch = WarmWeights(max_versions=2), Fetches()
    for version in ("v1", "v2", "v1", "v3", "v1"):
        warm.get(version, ["weight.a"], fetch)
    assert len(fetch.requests) == 3
    warm.get("v2", ["weight.a"], fetch)
    assert len(fetch.requests) == 4


class Dialled:
    def __init__(self, address):
        self.address, self.closed = address, False

    def close(self):
        self.closed = True


def test_a_connection_is_used_again_until_the_keys_change():
    links = Links(lambda address, keys: Dialled(address))
    first = links.to("a", {"public": "1"})
    assert links.to("a", {"public": "1"}) is first
    assert links.to("a", {"public": "2"}) is not first


def test_the_connections_used_longest_ago_are_closed():
    links = Links(lambda address, keys: Dialled(address), max_links=2)
    a, b = links.to("a", {}), links.to("b", {})
    links.to("a", {})
    links.to("c", {})
    assert (a.closed, b.closed) == (False, True)


def test_each_thread_has_connections_of_its_own():
    links = Links(lambda address, keys: Dialled(address))
    mine, others = links.to("a", {}), []
    thread = threading.Thread(target=lambda: others.append(links.to("a", {})))
    thread.start()
    thread.join()
    assert others[0] is not mine


def test_hanging_up_closes_all_and_the_next_is_dialled_anew():
    links = Links(lambda address, keys: Dialled(address))
    first = links.to("a", {})
    links.disconnect()
    assert first.closed
    assert links.to("a", {}) is not first
