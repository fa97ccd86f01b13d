"""How a memory limit is kept: the cheapest layout that fits, or an error with the cure."""

import re
from collections import namedtuple

import pytest

import dorylus
from dorylus import process_memory
from dorylus.errors import ConfigError
from dorylus.memory import limit as limits_module
from dorylus.memory import scratch
from dorylus.memory.limit import SPILL_POLICIES
from dorylus.saga import Savings, lower
from dorylus.training import assembly

MODEL = dorylus.gcn(hidden=[96, 96], dropout=0.5)
KIB = 1024


pytestmark = pytest.mark.usefixtures("bare_process")


def planned(graph, kib, **settings):
    return dorylus.plan_memory(graph, MODEL, memory=f"{kib}KiB", threads=1, **settings)


def test_more_memory_never_moves_more_and_a_run_that_fits_still_fits(wide):
    plans = [planned(wide, kib) for kib in range(4 * KIB, 112 * KIB, 2048)]
    results = [plan.verdict for plan in plans]
    order = ["does not fit", "fits with spilling", "fits"]
    assert sorted(set(results), key=order.index) == order
    assert results == sorted(results, key=order.index)
    moved = [plan.chosen.figures.read + plan.chosen.figures.written for plan in plans if plan.chosen]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] == 0


def test_the_widest_model_is_planned_in_few_tries():
    program = dorylus.gcn(hidden=1 << 24).build(4, 2, seed=0)
    plan = lower(program, sparse_features=False, training=False, savings=Savings())
    assert len(limits_module._spill_choices(plan)) < 40


def test_the_chosen_plan_leaves_a_margin_below_the_limit(wide):
    for kib in range(8 * KIB, 20 * KIB, 1024):
        plan = planned(wide, kib)
        assert plan.chosen is None or plan.chosen.peak <= kib * KIB * 24 // 25


def test_less_memory_means_more_data_in_files(wide):
    found = [planned(wide, kib).chosen for kib in range(80 * KIB, 4 * KIB, -1024)]
    policies = [each.limited.policy for each in found if each is not None and each.limited is not None]
    ranks = [SPILL_POLICIES.index(policy) for policy in policies]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) > 1
    assert any(each.training.parts for each in found if each is not None), "no limit was so small that gathers are cut"


def test_plans_for_training_and_evaluation_have_the_same_intervals(wide):
    for kib in range(32 * KIB, 80 * KIB, 8192):
        each = planned(wide, kib).reported
        assert bool(each.training.parts) == bool(each.evaluation.parts)


def test_requested_intervals_are_kept(wide):
    assert planned(wide, 64 * KIB, intervals=7).reported.intervals == 7


def test_without_a_limit_the_limit_is_the_memory_of_the_machine(wide, monkeypatch):
    monkeypatch.setattr(process_memory, "available_bytes", lambda: 123_456_789)
    assert dorylus.plan_memory(wide, MODEL).limit == 123_456_789


def test_a_limit_too_small_is_refused_before_anything_is_written(wide, tmp_path):
    with pytest.raises(ConfigError, match=r"^1\.0 MiB of memory are too little for graph .* Give memory='\d+MiB', or"):
        dorylus.train(wide, MODEL, memory="1MiB", run_dir=str(tmp_path / "run"), threads=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("kib", [256, 1024, 2048])
def test_the_memory_a_refusal_names_is_enough(kib, precision, wide):
    with pytest.raises(ConfigError) as caught:
        dorylus.train(wide, MODEL, memory=f"{kib}KiB", threads=1, precision=precision)
    assert ("With precision='bf16'" in str(caught.value)) is (precision == "float32")
    (named,) = re.findall(r"memory='(\d+)MiB'", str(caught.value))
    assert planned(wide, int(named) * KIB, precision=precision).verdict == "fits with spilling"


def test_the_memory_a_refusal_names_is_the_least(wide):
    named = int(re.findall(r"memory='(\d+)MiB'", planned(wide, 1024).cure)[0])
    assert planned(wide, (named - 1) * KIB).chosen is None


def test_a_named_limit_has_a_small_margin(wide, monkeypatch):
    least = int(re.findall(r"memory='(\d+)MiB'", planned(wide, 1024).cure)[0])
    monkeypatch.setattr(limits_module, "SPARE", 5 << 20)
    assert int(re.findall(r"memory='(\d+)MiB'", planned(wide, 1024).cure)[0]) == least + 5


def test_the_limit_that_is_named_does_not_depend_on_the_one_given(wide):
    named = {re.findall(r"memory='(\d+)MiB'", planned(wide, kib).cure)[0] for kib in (64, 512, 1024, 2048)}
    assert len(named) == 1


def test_a_limit_that_a_plan_names_is_enough_for_a_run_that_has_loaded_more(wide, monkeypatch):
    monkeypatch.setattr(assembly, "TO_LOAD", 12 << 20)
    named = re.findall(r"memory='(\d+)MiB'", planned(wide, 1024).cure)[0]
    monkeypatch.setattr(process_memory, "private_bytes", lambda: 12 << 20)
    assert dorylus.Trainer(wide, MODEL, memory=f"{named}MiB", threads=1).config.memory == f"{named}MiB"


def test_some_of_a_small_limit_is_left_alone(wide, monkeypatch):
    monkeypatch.setattr(limits_module, "LEAST_MARGIN", 7 << 20)
    plan = planned(wide, 16 << 10)
    assert plan.chosen is not None
    assert plan.peak <= 9 << 20


def test_a_run_of_one_interval_that_does_not_fit_is_refused_too():
    graph = dorylus.ring(num_vertices=50)
    with pytest.raises(ConfigError, match=r"are too little for graph .* Give memory='\d+MiB'"):
        dorylus.train(graph, MODEL, memory="16KiB", intervals=1, threads=1)


def test_a_plan_is_reported_in_one_line(wide):
    plan = planned(wide, 1024)
    assert repr(plan).startswith("MemoryPlan(does not fit: in memory ")
    assert "limit 1.0 MiB; an epoch reads " in repr(plan)
    assert plan.peak == plan.smallest.peak


def test_the_limit_named_for_bf16_is_enough(wide):
    (least,) = re.findall(
        r"With precision='bf16', which is an approximation, ([\d.]+) MiB are enough", planned(wide, 512).cure
    )
    assert planned(wide, int(float(least)) * KIB, precision="bf16").chosen is not None


def test_a_refusal_mentions_that_the_machine_has_too_little_memory_too(wide, monkeypatch):
    monkeypatch.setattr(process_memory, "free_bytes", lambda: 2 << 20)
    assert re.search(r"Give memory='\d+MiB' \(only 2\.0 MiB are free now\), or", planned(wide, 1024).cure)


def test_without_a_limit_the_cure_is_no_limit(wide, monkeypatch):
    monkeypatch.setattr(process_memory, "available_bytes", lambda: 1 << 20)
    plan = dorylus.plan_memory(wide, MODEL)
    assert re.match(
        r"1\.0 MiB of memory are free, which is too little for .* Free [\d.]+ MiB, take a larger machine", plan.cure
    )
    assert "memory=" not in plan.cure


Usage = namedtuple("Usage", "total used free")


def spilling(graph):
    """A limit with which a run fits only with files."""
    return next(kib for kib in range(9 * KIB, 20 * KIB, 1024) if planned(graph, kib).verdict == "fits with spilling")


@pytest.mark.parametrize(
    "settings", [{}, {"pool": "processes", "rematerialize": False}, {"rematerialize": True}], ids=str
)
def test_a_run_with_matrices_in_files_keeps_no_autograd_graphs_whatever_its_settings(wide, settings):
    assert not planned(wide, spilling(wide), **settings).chosen.keeps_graphs
    assert planned(wide, 1 << 20, **settings).chosen.keeps_graphs is not settings.get("rematerialize", False)


def test_a_disk_too_small_is_refused_with_the_cure(wide, tmp_path, monkeypatch):
    options = {"memory": f"{spilling(wide)}KiB", "scratch_dir": str(tmp_path), "threads": 1}
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda folder: Usage(100, 90, 10))
    with pytest.raises(ConfigError, match=r"of scratch in .*, which has 10 .* free: make room there, or .*scratch_dir"):
        dorylus.train(wide, MODEL, **options)
    assert not list(tmp_path.iterdir())


def test_a_disk_too_small_is_part_of_the_plan(wide, tmp_path, monkeypatch):
    kib = spilling(wide)
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda folder: Usage(100, 90, 10))
    plan = planned(wide, kib, scratch_dir=str(tmp_path))
    assert (plan.verdict, plan.scratch.free, plan.scratch.folder) == ("does not fit", 10, str(tmp_path))
    assert plan.scratch.needed == plan.chosen.figures.on_disk.total()
    assert "name another folder as scratch_dir" in plan.cure


def test_a_run_that_fits_in_memory_needs_no_disk(wide):
    plan = planned(wide, 112 * KIB)
    assert (plan.verdict, plan.scratch, plan.cure) == ("fits", None, "")


def test_a_disk_just_large_enough_is_taken(wide, tmp_path, monkeypatch):
    kib = spilling(wide)
    needed = planned(wide, kib).chosen.figures.on_disk.total()
    options = {"memory": f"{kib}KiB", "scratch_dir": str(tmp_path), "threads": 1, "epochs": 1}
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda folder: Usage(needed, 0, needed - 1))
    with pytest.raises(ConfigError, match="of scratch in"):
        dorylus.train(wide, MODEL, **options)
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda folder: Usage(needed, 0, needed))
    assert len(dorylus.train(wide, MODEL, **options).losses) == 1


def test_a_scratch_folder_that_is_not_there_is_refused(wide, tmp_path):
    options = {"memory": f"{spilling(wide)}KiB", "scratch_dir": str(tmp_path / "nowhere"), "threads": 1}
    with pytest.raises(ConfigError, match=r"scratch_dir=.*nowhere"):
        dorylus.train(wide, MODEL, **options)
