"""What a function loads: numpy, onnxruntime and, to dial, pyzmq. The tests block the import of heavy packages."""

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocked())
"""
HEAVY = {"torch", "scipy", "onnx", "onnxscript", "pandas", "rich", "typer", "boto3", "tomli_w", "safetensors"}
TASK = """
from dorylus.wire.frames import pack, unpack
import {entry} as entry
from dorylus.functions.handler import handle
assert unpack(handle(b"".join(pack({{"task": "t", "program": "x"}}, {{}})))).header["missing"] == "x"
"""
ALLOWED = {"dorylus", "numpy", "onnxruntime", "zmq"}
LOADED = """
import sysconfig
outside = set()
for name, module in list(sys.modules.items()):
    if "site-packages" in (getattr(module, "__file__", None) or ""):
        outside.add(name.split(".")[0])
print(sorted(outside))
"""


def run(program):
    return subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize(
    "entry", ["dorylus.functions.handler", "dorylus.functions.aws_lambda", "dorylus.functions.asgi"]
)
def test_the_handler_runs_where_nothing_heavy_is_installed(entry):
    done = run(BLOCKED.format(blocked=HEAVY | {"zmq"}) + TASK.format(entry=entry))
    assert done.returncode == 0, done.stderr


def test_nothing_is_loaded_but_what_a_function_ships():
    done = run("import sys" + TASK.format(entry="dorylus.functions.worker") + "import zmq" + LOADED)
    assert done.returncode == 0, done.stderr
    loaded = eval(done.stdout)
    assert {"torch", "onnx", "scipy"}.isdisjoint(loaded)
    assert {name for name in loaded if not name.startswith("_")} <= ALLOWED, loaded
