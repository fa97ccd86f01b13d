"""Names that several modules and pages list: each list is the same as its source."""

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import torch

from dorylus.backends import NumberFormat
from dorylus.config import RunConfig
from dorylus.errors import ConfigError
from dorylus.graph.reorder import _METHODS as VERTEX_ORDERS
from dorylus.pools import POOLS, PoolSpec
from dorylus.pools.registry import TuningBounds
from dorylus.saga.dense import loss_sum
from dorylus.saga.layer import Reduce
from dorylus.saga.reductions import REDUCTIONS
from dorylus.servers.parameter.updates import UPDATES

SOURCE = Path(__file__).parents[2] / "src" / "dorylus"
DOCS = Path(__file__).parents[2] / "docs"
FORMATS = {each.value for each in NumberFormat}


@pytest.mark.parametrize(
    ("setting", "known"),
    {
        "weight_update": set(UPDATES),
        "reorder": set(VERTEX_ORDERS),
        "precision": FORMATS,
        "ghost_precision": FORMATS,
        "pool": set(POOLS),
    }.items(),
)
def test_a_setting_takes_what_the_code_behind_it_knows(setting, known):
    assert set(RunConfig.__dataclass_fields__[setting].metadata["choices"]) == known


def test_every_loss_that_can_be_set_is_computed_and_no_other():
    losses = set(RunConfig.__dataclass_fields__["loss"].metadata["choices"]) - {"auto"}
    labels = {"cross_entropy": torch.tensor([1]), "bce": torch.ones(1, 2)}
    assert losses == labels.keys()
    for loss in losses:
        assert loss_sum(loss, torch.zeros(1, 2), labels[loss]) > 0
    with pytest.raises(ConfigError, match=r"use 'cross_entropy' .* or 'bce'"):
        loss_sum("auto", torch.zeros(1, 2), labels["bce"])


def test_a_layer_may_name_every_reduction():
    assert set(get_args(Reduce)) == REDUCTIONS.keys()


def first_arguments(*functions):
    """The texts that are the first argument of these functions, or methods, anywhere in the source."""
    calls = [node for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    calls = [node for node in calls if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(functions)]
    texts = (node.args[0].value for node in calls if node.args and isinstance(node.args[0], ast.Constant))
    return {text for text in texts if isinstance(text, str)}


LOG = (DOCS / "run-folder.md").read_text().split("\n## log.jsonl\n")[1].split("\n## ")[0]
RECORDS = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", LOG, re.MULTILINE))


def test_every_kind_of_record_is_documented_and_no_other():
    written = first_arguments("log.write", "self._write")
    assert written | {"left_out"} == set(RECORDS)  # the log itself writes that one


@pytest.mark.parametrize(("kind", "note"), [("pool", "note"), ("cluster", "self._note")])
def test_every_note_of_a_pool_and_of_servers_is_documented(kind, note):
    modules = {"pool": "pools", "cluster": "runtime"}[kind]
    noted = set()
    for path in (SOURCE / modules).rglob("*.py"):
        noted |= set(re.findall(r'\b_?note\(\s*"([\w ]+)"', path.read_text()))
    assert noted
    assert all(f"`{what}`" in RECORDS[kind] for what in noted)


def test_every_reason_to_stop_is_documented():
    stops = first_arguments("self._stop", "EarlyStopping") | {"diverged", "patience", "target_accuracy"}
    assert set(re.findall(r"`(\w+)`", RECORDS["stop"])) - {"reason", "epoch"} == stops


def test_the_page_of_pools_has_every_field_of_every_spec():
    lines = (line.strip("| ").split(" |") for line in (DOCS / "pools.md").read_text().splitlines() if "|" in line)
    table = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}
    names = table["field"][1:]
    assert names == list(POOLS)
    for field in {each.name for each in fields(PoolSpec)} - {"name", "help", "maker", "check"}:
        values = [getattr(POOLS[name], field) for name in names]
        values = [f"up to {each.at_most or 1000}" if isinstance(each, TuningBounds) else each for each in values]
        cells = [{True: "yes", False: "", None: ""}.get(each, each) for each in values]
        assert (table[f"`{field}`"][1:] + [""] * len(names))[: len(names)] == cells
