import pytest
import torch

from dorylus.pools.functions.data_service import WeightVersions
from dorylus.wire.frames import Refused


def some_weights():
    return {"w": torch.zeros(2)}


def test_a_version_is_one_mapping():
    versions = WeightVersions("run")
    one, other = some_weights(), some_weights()
    assert versions.use(one) == versions.use(one) != versions.use(other)


def test_the_latest_versions_keep_their_ids_while_unused():
    versions, weights = WeightVersions("run", max_unused=2), [some_weights() for _ in range(4)]
    ids = [versions.use(each) for each in weights]
    for version in ids:
        versions.release(version)
    assert len(versions) == 2
    assert versions.use(weights[3]) == ids[3]
    assert versions.use(weights[0]) != ids[0]


def test_a_version_in_use_stays_however_many_come_after_it():
    versions, weights = WeightVersions("run", max_unused=1), [some_weights() for _ in range(9)]
    kept = versions.use(weights[0])
    for each in weights[1:]:
        versions.release(versions.use(each))
    assert set(versions.get(kept, ["weight.w"])) == {"weight.w"}


def test_a_forgotten_version_is_refused():
    versions = WeightVersions("run", max_unused=0)
    version = versions.use(some_weights())
    versions.release(version)
    with pytest.raises(Refused, match=f"no task uses version {version}"):
        versions.get(version, [])


def test_ids_of_two_runs_differ():
    assert WeightVersions("a").use(some_weights()) != WeightVersions("b").use(some_weights())
