import subprocess
import sys

import pytest

import dorylus.wire

WITHOUT = "import sys; sys.modules.update({{name: None for name in {names!r}}}); "


def run(program, *without):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=without) + program], capture_output=True, text=True, check=False
    )


def test_frames_need_numpy_only():
    program = (
        "import numpy; from dorylus.wire.frames import pack, unpack; "
        "print(unpack(b''.join(pack({'a': 1}, {'x': numpy.ones(2)}))).header)"
    )
    done = run(program, "zmq", "torch", "scipy")
    assert done.stdout.strip() == "{'a': 1}", done.stderr


def test_ports_and_clients_need_no_torch():
    done = run("from dorylus.wire import Client, DataPort, RunKeys; print(RunKeys.fresh())", "torch", "scipy")
    assert done.stdout.strip() == "RunKeys(0 clients)", done.stderr


def test_without_pyzmq_the_error_names_what_to_install():
    done = run("import dorylus.wire; dorylus.wire.DataPort", "zmq")
    assert 'ConfigError: the data path of functions needs pyzmq: pip install "dorylus[functions]"' in done.stderr


@pytest.mark.parametrize("name", dorylus.wire.__all__)
def test_every_name_exists_and_is_documented(name):
    assert getattr(dorylus.wire, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Porter'"):
        dorylus.wire.Porter  # noqa: B018
