import json
import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dorylus.errors import CheckpointError
from dorylus.runs.checkpoint import decode, encode

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.text() | st.integers() | st.sampled_from(["$tuple", "$tensor", "$float", "$items", "$counter"])
STATES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)


def round_trip(value):
    tensors = {}
    text = json.dumps(encode(value, "state", tensors), allow_nan=False)
    return decode(json.loads(text), tensors)


def same(a, b):
    """Equal in value and type all the way down: 1 is not 1.0, a tuple is no list, -0.0 is not 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))


@given(STATES)
def test_every_value_survives_a_round_trip(state):
    assert same(round_trip(state), state)


def test_a_nan_comes_back_as_a_nan():
    assert math.isnan(round_trip({"best": math.nan})["best"])


def test_a_counter_comes_out_as_a_counter():
    assert round_trip(Counter({3: 2, 5: 1})) == Counter({3: 2, 5: 1})
    assert type(round_trip(Counter({3: 2}))) is Counter


def test_tensors_are_named_by_their_path():
    tensors = {}
    state = {"state": {0: {"exp_avg": torch.ones(2)}}, "pair": (torch.zeros(1), 1)}
    encoded = encode(state, "optimizer", tensors)
    assert sorted(tensors) == ["optimizer.pair.0", "optimizer.state.0.exp_avg"]
    assert decode(encoded, tensors)["pair"][0] is tensors["optimizer.pair.0"]


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", torch.optim.SGD])
def test_a_value_that_no_file_can_hold_is_refused_with_its_path(value):
    with pytest.raises(CheckpointError, match=r"state\.deep\.0 is a "):
        encode({"deep": [value]}, "state", {})
