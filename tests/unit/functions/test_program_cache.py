import hashlib
import json
import os
from pathlib import Path

import pytest

from dorylus.functions.program import ExportedProgram
from dorylus.functions.program_cache import ProgramCache, default_folder

PROGRAM = ExportedProgram.of(b"onnx\nwith\x00newlines\n", ("rows.0", "weight.a.b"), ("output.0",))
OTHER = ExportedProgram.of(b"another", ("rows.0",), ("output.0",))


@pytest.fixture
def cache(tmp_path):
    return ProgramCache(tmp_path / "programs")


def only_file(cache: ProgramCache) -> Path:
    (path,) = cache.folder.iterdir()
    return path


def test_what_was_put_is_found_by_its_key(cache):
    cache.put("key", PROGRAM)
    assert cache.get("key") == PROGRAM
    assert cache.get("another") is None


def test_another_process_finds_it_too(cache):
    cache.put("key", PROGRAM)
    assert ProgramCache(cache.folder).get("key") == PROGRAM


def test_the_last_put_under_a_key_counts_and_nothing_else_is_left(cache):
    cache.put("key", PROGRAM)
    cache.put("key", OTHER)
    assert cache.get("key") == OTHER
    assert only_file(cache).name == "key.program"


@pytest.mark.parametrize("at", [0, 30, 70, 100, 150, -1])
def test_a_damaged_byte_is_detected(cache, at):
    cache.put("key", PROGRAM)
    content = bytearray(only_file(cache).read_bytes())
    content[at] ^= 1
    only_file(cache).write_bytes(content)
    assert cache.get("key") is None
    cache.put("key", PROGRAM)
    assert cache.get("key") == PROGRAM


@pytest.mark.parametrize("left", [0, 1, 64, 65, 100])
def test_a_file_that_was_cut_off_is_detected(cache, left):
    cache.put("key", PROGRAM)
    only_file(cache).write_bytes(only_file(cache).read_bytes()[:left])
    assert cache.get("key") is None


def test_a_file_under_another_key_is_not_taken(cache):
    cache.put("key", PROGRAM)
    only_file(cache).rename(cache.folder / "other.program")
    assert cache.get("other") is None


def test_the_least_used_are_dropped_when_there_is_no_more_room(tmp_path):
    cache = ProgramCache(tmp_path, max_bytes=2500)
    for number in range(3):
        cache.put(f"key{number}", ExportedProgram.of(bytes(600), ("rows.0",), ("output.0",)))
        os.utime(tmp_path / f"key{number}.program", (number, number))
    assert cache.get("key0") is not None  # which makes it the one used last
    cache.put("key3", ExportedProgram.of(bytes(1200), ("rows.0",), ("output.0",)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key0.program", "key3.program"]


def test_a_folder_that_cannot_be_made_keeps_nothing_and_is_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = ProgramCache(tmp_path / "file" / "programs")
    cache.put("key", PROGRAM)
    assert cache.get("key") is None


def test_programs_lie_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "dorylus" / "programs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ProgramCache().folder == tmp_path / ".cache" / "dorylus" / "programs"


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.pop("inputs"),
        lambda about: about.pop("kept"),
        lambda about: about.update(inputs=7),
        lambda about: about.update(outputs="output.0"),
        lambda about: about.update(outputs=["nothing we know"]),
        lambda about: about.update(kept={"saved.0": "wide"}),
        lambda about: about.update(kept=[1]),
    ],
)
def test_an_intact_file_with_malformed_fields_is_not_used(cache, change):
    cache.put("key", PROGRAM)
    _, line, *content = only_file(cache).read_bytes().split(b"\n")
    about = json.loads(line)
    change(about)
    rest = b"\n".join([json.dumps(about).encode(), *content])
    only_file(cache).write_bytes(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
    assert cache.get("key") is None


def test_a_file_larger_than_all_programs_together_is_no_program(tmp_path, fill_with_zeros, little_memory):
    cache = ProgramCache(tmp_path, max_bytes=1 << 20)
    fill_with_zeros(tmp_path / "key.program")
    with little_memory():
        assert cache.get("key") is None
