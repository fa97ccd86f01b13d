"""The rules for options of builders and layers, which come from Python, a file or a command line."""

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

from dorylus.errors import ConfigError, given

MOST_LAYERS = 100  # a row's deepest level is stored in a byte
MOST_COLUMNS = 1 << 24  # of a row, in a hidden layer
MOST_HEADS = 1 << 12
LARGEST = 1e30  # the largest number other than a count: weights are float32


class OptionRule(NamedTuple):
    """What an option may be, as a description and as a predicate, and a usual value."""

    description: str
    holds: Callable[[Any], bool]
    usual: Any

    def or_left_out(self) -> "OptionRule":
        """The same rule, which also accepts None."""
        return OptionRule(
            f"{self.description}, or left out", lambda value: value is None or self.holds(value), self.usual
        )


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _whole(most: int, usual: int) -> OptionRule:
    def holds(value: Any) -> bool:
        return _is_whole(value) and 1 <= value <= most

    return OptionRule(f"a whole number, at least 1 and at most {most:,}", holds, usual)


def _real(description: str, fits: Callable[[Any], bool], usual: float) -> OptionRule:
    return OptionRule(
        description, lambda value: isinstance(value, Real) and not isinstance(value, bool) and fits(value), usual
    )


def _widths(usual: int) -> OptionRule:
    one = _whole(MOST_COLUMNS, usual)

    def holds(value: Any) -> bool:
        return all(map(one.holds, value)) if isinstance(value, list | tuple) else one.holds(value)

    return OptionRule(f"{one.description}, or a list of them, one for each hidden layer", holds, one.usual)


WIDTH = _whole(MOST_COLUMNS, 8)
_HEADS = _whole(MOST_HEADS, 8)
_SHARE = _real("the share of entries that are dropped, at least 0 and less than 1", lambda value: 0 <= value < 1, 0.5)
_SLOPE = _real(f"a number, at least 0 and at most {LARGEST:g}", lambda value: 0 <= value <= LARGEST, 0.2)
_EPS = _real(f"a finite number, at least -{LARGEST:g} and at most {LARGEST:g}", lambda value: abs(value) <= LARGEST, 0)
_SWITCH = OptionRule("true or false", lambda value: isinstance(value, bool), True)
_ACTIVATION = OptionRule("a name", lambda value: isinstance(value, str), "relu")
_AGGREGATOR = OptionRule("a name", lambda value: isinstance(value, str), "mean")
_RULES: Mapping[str, OptionRule] = {
    "hidden": _widths(16), "num_layers": _whole(MOST_LAYERS, 2).or_left_out(), "heads": _HEADS, "output_heads": _HEADS,
    "dropout": _SHARE, "input_dropout": _SHARE.or_left_out(), "attention_dropout": _SHARE.or_left_out(),
    "slope": _SLOPE, "eps": _EPS, "residual": _SWITCH, "layer_norm": _SWITCH, "train_eps": _SWITCH,
    "activation": _ACTIVATION, "aggregator": _AGGREGATOR,
}  # fmt: skip


_BATCH_NORM = (
    "is no option, because a batch norm depends on which rows come together, and rows are cut into intervals: leave it "
    f"out, or use {given('layer_norm', True)}."
)
_WIDTH = "is no option, because widths come from the graph: leave it out."
_OF_RUN = "is a setting of the run, not of the model: give it to dorylus.train(graph, model, ...)."
_LEFT_OUT = "is no option, because the builder does this as its paper does: leave it out."
_MEANT = {
    "hidden": "hidden_channels hidden_dim hidden_size hidden_features hidden_units n_hidden num_hidden nhid dim width",
    "num_layers": "n_layers nlayers layers depth num_convs",
    "heads": "num_heads n_heads nheads",
    "output_heads": "out_heads num_out_heads",
    "dropout": "drop dropout_rate drop_rate drop_prob p",
    "input_dropout": "feat_drop in_dropout",
    "attention_dropout": "attn_drop att_dropout attn_dropout",
    "slope": "negative_slope leaky_slope alpha",
    "aggregator": "aggr agg aggregator_type aggregation pool",
    "activation": "act act_fn nonlinearity",
    "residual": "residuals skip skip_connections",
    "layer_norm": "layernorm ln",
    "train_eps": "learn_eps",
    _BATCH_NORM: "batch_norm batchnorm bn norm norm_layer",
    _WIDTH: "in_channels in_dim in_feats in_features input_dim num_features nfeat out_channels out_dim out_feats "
    "out_features output_dim num_classes n_classes nclass",
    _OF_RUN: "lr learning_rate epochs weight_decay seed optimizer loss servers memory",
    _LEFT_OUT: "bias cached normalize add_self_loops improved concat",
}
MEANT: Mapping[str, str] = {name: ours for ours, names in _MEANT.items() for name in names.split()}
"""What options of other libraries are called here, or why there is none: see :func:`dorylus.errors.unknown_name`."""


def checked(options: dict[str, Any], **rules: OptionRule) -> dict[str, Any]:
    """The options, each as its rule in ``rules``, or else the usual one, has it; refused with a usual value if not."""
    for name, value in options.items():
        rule = rules.get(name, _RULES[name])
        if not rule.holds(value):
            raise ConfigError(
                f"{given(name, value)}, but {given(name)} is {rule.description}: use {given(name, rule.usual)}, for "
                "instance."
            )
    return options
