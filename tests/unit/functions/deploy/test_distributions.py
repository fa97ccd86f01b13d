import zipfile

import pytest

from dorylus.errors import ConfigError
from dorylus.functions.deploy.config import on_aws, on_this_machine
from dorylus.functions.deploy.distributions import (
    can_be_copied,
    copied,
    installed,
    is_needed,
    needed_for,
    requirements,
    runs_on_lambda,
    unpacked,
)


@pytest.mark.parametrize(
    "place",
    [
        "numpy/__init__.py",
        "numpy/_core/_multiarray_umath.cpython-312-x86_64-linux-gnu.so",
        "numpy.libs/libscipy_openblas64_-32a4b2a6.so",
        "numpy/LICENSE.txt",
        "numpy-2.4.6.dist-info/METADATA",
        "numpy-2.4.6.dist-info/licenses/LICENSE.txt",
        "onnxruntime/__init__.py",
        "onnxruntime/capi/onnxruntime_pybind11_state.so",
        "onnxruntime/ThirdPartyNotices.txt",
        "zmq/backend/cython/_zmq.abi3.so",
        "runtime_client.cpython-311-x86_64-linux-gnu.so",
    ],
)
def test_what_a_function_runs_is_packed_and_licences_too(place):
    assert is_needed(place)


@pytest.mark.parametrize(
    "place",
    [
        "numpy/_core/tests/test_umath.py",
        "numpy/__pycache__/__init__.cpython-312.pyc",
        "numpy/_core/include/numpy/arrayobject.h",
        "numpy/__init__.pyi",
        "numpy/f2py/rules.py",
        "numpy/random/lib/libnpyrandom.a",
        "numpy-2.4.6.dist-info/RECORD",
        "onnxruntime/tools/symbolic_shape_infer.py",
        "onnxruntime/transformers/optimizer.py",
        "onnxruntime/capi/libonnxruntime.so.1.31.1",
        "zmq/tests/test_socket.py",
    ],
)
def test_what_a_function_never_runs_is_left_out(place):
    assert not is_needed(place)


@pytest.mark.parametrize(
    ("tags", "architecture", "runs"),
    [
        (["cp312-cp312-manylinux_2_28_x86_64"], "x86_64", True),
        (["cp312-cp312-manylinux2014_x86_64"], "x86_64", True),
        (["cp312-abi3-manylinux_2_26_aarch64", "cp312-abi3-manylinux_2_28_aarch64"], "arm64", True),
        (["py3-none-any"], "arm64", True),
        (["cp312-cp312-manylinux_2_39_x86_64"], "x86_64", False),  # built for a newer C library than Lambda has
        (["cp312-cp312-linux_x86_64"], "x86_64", False),  # built on some machine for itself
        (["cp312-cp312-manylinux_2_28_aarch64"], "x86_64", False),
        (["cp312-cp312-macosx_14_0_arm64"], "arm64", False),
        ([], "x86_64", False),
    ],
)
def test_only_wheels_for_an_old_enough_linux_run_on_lambda(tags, architecture, runs):
    assert runs_on_lambda(tags, architecture) is runs


def test_this_machine_needs_the_runtime_client_that_aws_has():
    assert needed_for(on_aws()) == ("numpy", "onnxruntime", "pyzmq")
    assert "awslambdaric" in needed_for(on_this_machine())


def test_what_is_installed_here_is_not_copied_for_another_python():
    other = "3.12" if on_this_machine().python != "3.12" else "3.13"
    assert can_be_copied(["numpy"], on_this_machine())
    assert not can_be_copied(["numpy"], on_aws(python=other))


def test_requirements_are_the_versions_that_are_installed():
    import numpy

    assert requirements(["numpy"]) == [f"numpy=={numpy.__version__}"]


@pytest.mark.parametrize(("name", "extra"), [("no-such-package", "lambda"), ("awslambdaric", "local-functions")])
def test_a_package_that_is_missing_is_named_with_what_installs_it(monkeypatch, name, extra):
    from importlib.metadata import PackageNotFoundError

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("dorylus.functions.deploy.distributions.distribution", missing)
    with pytest.raises(ConfigError, match=rf'{name}.*pip install "dorylus\[{extra}\]"'):
        installed(name)


def test_an_installed_package_is_copied_without_its_tests():
    places = {place for place, _ in copied("pyzmq")}
    assert any(place.startswith("zmq/backend/cython/") for place in places)
    assert not any("/tests/" in place or place.endswith(".pyc") for place in places)


def test_a_wheel_is_pruned_in_the_same_way(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        for place in ("numpy/a.py", "numpy/tests/b.py", "numpy/c.pyi"):
            archive.writestr(place, place)
    assert list(unpacked(tmp_path / "x.whl")) == [("numpy/a.py", b"numpy/a.py")]
