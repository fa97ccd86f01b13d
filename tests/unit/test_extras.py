"""Which of the packages that every install needs does not load, and what is said about it."""

import pytest

from dorylus import extras


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Makes modules, by name and source, the packages that are needed."""

    def make(**sources):
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(extras, "CORE", tuple(sources))

    return make


def test_the_first_package_that_does_not_load_is_named_with_the_reason_and_the_cure(packages):
    packages(well="", broken="raise ImportError('no such symbol')", another="raise ImportError('not reached')")
    assert extras.broken_package() == (
        "broken does not load: ImportError: no such symbol",
        "install broken again: pip install --force-reinstall --no-deps broken",
    )


def test_a_package_that_ends_the_process_is_named(packages):
    packages(deadly="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    found, _ = extras.broken_package()
    assert found == "deadly does not load: dies of SIGSEGV"


def test_a_package_that_never_loads_is_named(packages, monkeypatch):
    packages(endless="import threading; threading.Event().wait()")
    monkeypatch.setattr(extras, "_IMPORT_S", 0.5)
    found, _ = extras.broken_package()
    assert found == "endless does not load: it takes more than 0.5 s"


def test_nothing_is_broken_here(packages):
    packages(well="")
    assert extras.broken_package() is None
