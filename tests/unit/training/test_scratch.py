import shutil

import pytest

from dorylus.training.scratch import Scratch


def test_enough_room_is_no_problem(tmp_path):
    found = Scratch.of(str(tmp_path), 1000, asked=True)
    assert (found.folder, found.needed, found.problem) == (str(tmp_path), 1000, "")
    assert abs(found.free - shutil.disk_usage(tmp_path).free) < 2**30


def test_too_little_room_is_told_with_what_is_needed_and_free():
    assert Scratch("/disk", 3 << 30, 1 << 30).problem == (
        "the run needs 3.0 GiB of scratch in /disk, which has 1.0 GiB free: make room there, or name another folder as "
        "scratch_dir."
    )


def test_a_folder_asked_for_by_name_has_to_be_there(tmp_path):
    found = Scratch.of(str(tmp_path / "nowhere"), 1, asked=True)
    assert found.free is None
    assert "is no folder: make it, or name another" in found.problem


def test_a_folder_that_the_run_will_make_need_not(tmp_path):
    found = Scratch.of(str(tmp_path / "runs" / "of today"), 1, asked=False)
    assert found.free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
    assert found.problem == ""
    assert not list(tmp_path.iterdir())
