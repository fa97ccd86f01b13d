"""Arguments that every generator refuses."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from dorylus.errors import ConfigError
from dorylus.graph import Graph, communities, ring, rmat


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 2.5])
@pytest.mark.parametrize("name", ["num_vertices", "num_classes", "num_features", "seed"])
@pytest.mark.parametrize("make", [communities, ring, rmat])
def test_an_invalid_count_is_refused_with_the_rule_and_a_typical_value(
    make: Callable[..., Graph], name: str, value: Any
) -> None:
    sentence = rf"^{name}={value}, but {name} is a whole number, at least \d: use {name}=\d+, for instance\.$"
    with pytest.raises(ConfigError, match=sentence):
        make(**{name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"signal": math.nan}, "signal=nan, but signal is a finite number: use signal=1"),
        ({"split": (math.nan, 0.1)}, r"split=\(nan, 0.1\), but the shares .*: use split=\(0.6, 0.2\)"),
    ],
)
@pytest.mark.parametrize("make", [communities, ring, rmat])
def test_an_amount_that_is_not_finite_is_refused_with_the_rule_and_a_typical_value(
    make: Callable[..., Graph], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(num_vertices=300, **options)


@pytest.mark.parametrize("name", ["degree_exponent", "average_degree", "homophily"])
def test_communities_with_arguments_that_are_not_numbers_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=nan .*use|{name}=nan, .*use"):
        communities(num_vertices=300, **{name: math.nan})


@pytest.mark.parametrize("scale", [math.nan, -1, 31, 10**9])
def test_a_scale_that_no_graph_has_is_refused(scale: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^scale={scale}, but .*: use scale="):
        rmat(scale=scale)
