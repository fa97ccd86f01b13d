import hashlib
import zipfile

import pytest

from dorylus.functions.deploy import package as packing
from dorylus.functions.deploy.config import DeployError, Platform, on_aws, on_this_machine
from dorylus.functions.deploy.package import bootstrap, build, default_folder, needs_download

SMALL = {
    "numpy": [("numpy/__init__.py", b"x = 1\n"), ("numpy/core.so", b"machine code")],
    "onnxruntime": [],
    "pyzmq": [],
}


@pytest.fixture(autouse=True)
def small_packages(monkeypatch):
    """Packages of a few bytes in place of the installed ones."""
    monkeypatch.setattr(packing, "copied", lambda name: SMALL.get(name, [(f"{name}.py", b"")]))
    monkeypatch.setattr(packing, "can_be_copied", lambda names, platform: platform.fits_here)


def names(package):
    with zipfile.ZipFile(package.path) as archive:
        return archive.namelist()


def test_the_zip_holds_packages_our_modules_and_their_bytecode_in_order(tmp_path):
    made = build(on_this_machine(), tmp_path)
    inside = names(made)
    assert inside == sorted(inside)
    assert {"numpy/core.so", "dorylus/functions/handler.py", "dorylus/wire/client.py", "bootstrap"} <= set(inside)
    assert any(name.startswith("dorylus/functions/__pycache__/handler.cpython-") for name in inside)
    assert not any("torch" in name or "saga" in name for name in inside)


def test_only_programs_are_executable_and_entries_hold_no_time_of_day(tmp_path):
    with zipfile.ZipFile(build(on_this_machine(), tmp_path).path) as archive:
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert (modes["bootstrap"], modes["numpy/core.so"], modes["numpy/__init__.py"]) == (0o755, 0o755, 0o644)


def test_the_same_contents_give_the_same_bytes(tmp_path):
    first, second = (build(on_this_machine(), tmp_path / name) for name in ("a", "b"))
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.sha256 == second.sha256


def test_a_zip_is_built_once_and_again_when_something_changes(tmp_path, monkeypatch):
    first = build(on_this_machine(), tmp_path)
    monkeypatch.setattr(packing, "_zip", lambda entries: pytest.fail("built again"))
    assert build(on_this_machine(), tmp_path) == first
    monkeypatch.undo()
    monkeypatch.setattr(packing, "copied", lambda name: [(f"{name}.py", b"y = 2\n")])
    assert build(on_this_machine(), tmp_path).sha256 != first.sha256


def test_a_damaged_zip_is_built_again(tmp_path):
    first = build(on_this_machine(), tmp_path)
    first.path.write_bytes(first.path.read_bytes()[:-1] + b"?")
    again = build(on_this_machine(), tmp_path)
    assert again == first
    assert zipfile.ZipFile(again.path).testzip() is None


def test_only_the_latest_zips_are_kept(tmp_path, monkeypatch):
    for number in range(10):
        monkeypatch.setattr(packing, "copied", lambda name, n=number: [(f"{name}.py", b"%d" % n)])
        build(on_this_machine(), tmp_path)
    assert len(list(tmp_path.glob("*.zip"))) == 6


def test_what_lambda_would_not_take_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(DeployError, match="install smaller releases"):
        build(on_this_machine(), tmp_path)


def test_the_hash_is_in_the_format_of_lambda(tmp_path):
    import base64

    made = build(on_this_machine(), tmp_path)
    assert base64.b64decode(made.code_sha256) == hashlib.sha256(made.read()).digest()


def test_another_platforms_packages_are_fetched_and_its_zip_has_no_bootstrap(tmp_path, monkeypatch):
    here = on_this_machine()
    other = Platform(
        "arm64" if here.architecture == "x86_64" else "x86_64", "3.13" if here.python != "3.13" else "3.12"
    )
    wheel = tmp_path / "numpy-2-cp313.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("numpy/__init__.py", "x = 1\n")
    downloads = []
    monkeypatch.setattr(packing, "requirements", lambda names: [f"{name}==2" for name in names])
    monkeypatch.setattr(packing, "download", lambda *given: downloads.append(given) or [wheel])
    inside = names(build(other, tmp_path / "folder"))
    assert downloads[0][:2] == (["numpy==2", "onnxruntime==2", "pyzmq==2"], other)
    assert "numpy/__init__.py" in inside
    assert "bootstrap" not in inside
    assert not any("__pycache__" in name for name in inside)  # this Python cannot compile for that one


def test_missing_wheels_are_listed_without_a_download(tmp_path, monkeypatch):
    other = on_aws(python="3.13" if on_this_machine().python != "3.13" else "3.12")
    monkeypatch.setattr(packing, "requirements", lambda names: ["numpy==2", "pyzmq==3"])
    folder = tmp_path / "wheels" / f"{other.python}-{other.architecture}"
    folder.mkdir(parents=True)
    of_nothing = f"--hash=sha256:{hashlib.sha256(b'').hexdigest()}"
    (folder.parent / "hashes.lock").write_text(f"numpy==2 {of_nothing}\npyzmq==3 {of_nothing}\n")
    assert needs_download(other, tmp_path) == ["numpy==2", "pyzmq==3"]
    (folder / "numpy-2-cp313-cp313-manylinux_2_28_x86_64.whl").touch()
    assert needs_download(other, tmp_path) == ["pyzmq==3"]
    assert needs_download(on_this_machine(), tmp_path) == []


def test_the_bootstrap_starts_awss_runtime_client_with_nothing_but_the_zip():
    script = bootstrap("/a path/python")
    assert script.startswith("#!/bin/sh\n")
    assert "exec '/a path/python' -S -m awslambdaric" in script


def test_zips_are_kept_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "dorylus" / "functions"


def test_a_folder_that_cannot_be_made_is_reported_with_the_cure(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(DeployError, match="XDG_CACHE_HOME"):
        build(on_this_machine(), tmp_path / "taken" / "functions")
