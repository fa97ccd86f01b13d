"""bfloat16 activations: an approximation that stays near float32, and it never kills the process."""

import json
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

MODELS = ("gcn", "gat", "sage", "gin")
# In a child process: some processors advertise bfloat16 instructions that kill it, and a test must report that.
SCRIPT = """
import json, sys
import dorylus
graph = dorylus.communities(num_vertices=400, num_classes=4, num_features=33, average_degree=12, seed=1)
for model in sys.argv[2:]:
    widths = {"hidden": 4, "heads": 3} if model == "gat" else {"hidden": 12}
    recipe = getattr(dorylus, model)(dropout=0.0, **widths)
    result = dorylus.train(graph, recipe, epochs=20, lr=0.01, precision=sys.argv[1], seed=5, threads=2)
    print(json.dumps({"losses": result.losses, "logits": result.predict("logits").astype(float).tolist()}))
"""


@cache
def runs(precision: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-c", SCRIPT, precision, *MODELS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
    return dict(zip(MODELS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_bf16_stays_near_float32(model: str) -> None:
    exact, rounded = runs("float32")[model], runs("bf16")[model]
    np.testing.assert_allclose(rounded["losses"], exact["losses"], rtol=0.03)
    off = np.abs(np.array(rounded["logits"]) - exact["logits"]).max()
    assert off < 0.1 * np.abs(exact["logits"]).max()


@pytest.mark.parametrize("model", MODELS)
def test_bf16_is_really_used(model: str) -> None:
    assert runs("bf16")[model]["losses"] != runs("float32")[model]["losses"]
