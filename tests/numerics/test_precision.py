"""bfloat16 activations: an approximation that stays near float32, and never the death of the process."""

import json
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

# In a child: some processors advertise bfloat16 instructions whose execution kills the process, and a test must say so.
SCRIPT = """
import json, sys
import dorylus
model, precision = sys.argv[1:]
graph = dorylus.communities(num_vertices=400, num_classes=4, num_features=33, average_degree=12, seed=1)
options = {"hidden": 4, "heads": 3} if model == "gat" else {"hidden": 12}
recipe = getattr(dorylus, model)(dropout=0.0, **options)
result = dorylus.train(graph, recipe, epochs=20, lr=0.01, precision=precision, seed=5, threads=2)
print(json.dumps({"losses": list(result.losses), "logits": result.predict("logits").astype(float).tolist()}))
"""


@cache
def run(model: str, precision: str) -> dict[str, list[float]]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, model, precision], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin"])
def test_bf16_stays_near_float32(model: str) -> None:
    exact, rounded = run(model, "float32"), run(model, "bf16")
    np.testing.assert_allclose(rounded["losses"], exact["losses"], rtol=0.03)
    off = np.abs(np.array(rounded["logits"]) - exact["logits"]).max()
    assert off < 0.1 * np.abs(exact["logits"]).max()


def test_bf16_is_really_used() -> None:
    assert run("gcn", "bf16")["losses"] != run("gcn", "float32")["losses"]
