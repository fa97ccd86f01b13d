"""A run without a limit is refused where the machine has too little memory, with a limit that suffices."""

import re
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest

import dorylus
from dorylus import process_memory
from dorylus.errors import ConfigError
from dorylus.memory import room, scratch
from dorylus.partition import make_partitioning, save_shards

MODEL = dorylus.gcn(hidden=[96, 96], dropout=0.5)
MIB = 2**20


pytestmark = pytest.mark.usefixtures("bare_process")


@pytest.fixture
def free(monkeypatch):
    """Sets how many MiB the machine has free."""

    def set_free(mib):
        monkeypatch.setattr(process_memory, "free_bytes", lambda: None if mib is None else round(mib * MIB))

    return set_free


def trained(graph, model=MODEL, **settings):
    return dorylus.train(graph, model, epochs=1, eval_every=0, threads=1, **settings)


def refused(graph, model=MODEL, **settings):
    with pytest.raises(ConfigError) as caught:
        trained(graph, model, **settings)
    return str(caught.value)


def test_a_run_with_enough_memory_starts(wide, free):
    free(256)
    assert len(trained(wide).losses) == 1


def test_a_run_without_enough_memory_is_refused_before_any_work_with_a_sufficient_limit(wide, free, tmp_path):
    free(40)
    text = refused(wide, run_dir=str(tmp_path / "run"))
    assert re.match(
        r"the run needs about [56]\d\.\d MiB of memory, and 40\.0 MiB are free\. Give memory='38MiB': what does not "
        r"fit then lies in files, \d+\.\d MiB of scratch in .*\.$",
        text,
    )
    assert not list(tmp_path.iterdir())
    assert len(trained(wide, memory="38MiB").losses) == 1


def test_the_predicted_need_is_the_threshold(wide, free):
    free(40)
    (needed,) = re.findall(r"needs about ([\d.]+) MiB", refused(wide))
    free(float(needed) + 0.1)
    assert len(trained(wide).losses) == 1


def test_a_machine_that_does_not_report_its_memory_is_assumed_to_have_enough(wide, free):
    free(None)
    assert len(trained(wide).losses) == 1


def test_a_given_limit_is_not_checked_against_free_memory(wide, free):
    free(1)
    assert len(trained(wide, memory="1GiB").losses) == 1


@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ({"mode": "async"}, "Give mode='pipe' and memory='38MiB'"),
        ({"reorder": "degree"}, "Give reorder='none' and memory='38MiB'"),
        ({"servers": 2}, "Give servers=1 and memory='38MiB'"),
        ({"mode": "async", "reorder": "bfs"}, "Give mode='pipe', reorder='none' and memory='38MiB'"),
    ],
)
def test_settings_that_cannot_be_combined_with_a_limit_are_part_of_the_cure(settings, cure, wide, free):
    free(40)
    assert cure in refused(wide, **settings)


def test_saved_shards_of_several_servers_cannot_be_combined_with_a_limit(wide, free, tmp_path):
    save_shards(tmp_path / "shards", wide, make_partitioning(wide, 2, "range"))
    free(40)
    given = {"servers": 2, "partition": str(tmp_path / "shards")}
    assert "Give servers=1, partition='stream' and memory='38MiB'" in refused(wide, **given)


def test_a_prediction_without_enough_memory_is_refused_with_a_sufficient_limit(wide, free, tmp_path):
    model, out = MODEL.build(wide.num_features, wide.num_classes, seed=0), tmp_path / "scores.npy"
    expected, config = dorylus.predict(wide, model), dorylus.RunConfig(threads=1)
    free(16)
    with pytest.raises(ConfigError, match=r"the forward pass needs about 1\d\.\d MiB of .* Give memory='15MiB': what"):
        dorylus.predict(wide, model, config=config, out=out)
    assert not list(tmp_path.iterdir())
    dorylus.predict(wide, model, config=config, memory="15MiB", out=out)
    np.testing.assert_allclose(np.load(out), expected, rtol=1e-5, atol=1e-6)


def test_a_forward_pass_makes_nothing_for_gradients(wide, free):
    """With attention, training keeps as many columns again as it gathers."""
    model = dorylus.gat(hidden=64, heads=2).build(wide.num_features, wide.num_classes, seed=0)
    held = (2 * 128 + 2 * 2 + 42) * 4 * wide.num_vertices / MIB  # what is gathered and made of it, for the next layer
    free(held)
    with pytest.raises(ConfigError) as caught:
        dorylus.predict(wide, model, config=dorylus.RunConfig(threads=1))
    (needed,) = re.findall(r"needs about ([\d.]+) MiB", str(caught.value))
    assert held < float(needed) < 1.35 * held


def test_a_limit_near_the_free_memory_is_named_where_no_lower_one_suffices(wide, free):
    free(1)
    (least,) = re.findall(r"it needs ([\d.]+) MiB", refused(wide, precision="bf16"))
    free(float(least) + 0.2)
    assert f"memory='{int(float(least))}MiB'" in refused(wide, precision="bf16")


def test_where_no_limit_suffices_the_least_required_is_named(wide, free):
    free(2)
    text = refused(wide)
    assert re.search(r"Even with a limit, and everything in files that can be, it needs [\d.]+ MiB: end other", text)
    assert "memory=" not in text


def test_bf16_is_proposed_where_it_makes_the_run_fit(wide, free):
    least = [_least(wide, free, precision) for precision in ("float32", "bf16")]
    free(least[1])
    assert least[1] < least[0]
    text = refused(wide)
    assert re.search(r"Give memory='\d+MiB' and precision='bf16', which is an approximation, or", text)
    (named,) = re.findall(r"memory='(\d+MiB)'", text)
    assert len(trained(wide, memory=named, precision="bf16").losses) == 1


def _least(graph, free, precision):
    free(1)
    return float(re.findall(r"it needs ([\d.]+) MiB", refused(graph, precision=precision))[0])


def test_a_disk_too_small_for_the_files_is_reported(wide, free, monkeypatch):
    free(40)
    usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda folder: usage(100, 90, 10))
    assert re.search(
        r"memory='38MiB' would do with \d+\.\d MiB of scratch in .*, where 10 B are free: make room there, or name "
        r"another as scratch_dir\.$",
        refused(wide),
    )


def test_rows_that_training_leaves_out_do_not_count(wide, free):
    mask = np.zeros(wide.num_vertices, np.bool_)
    mask[:2] = True
    few = replace(wide, train_mask=mask)
    free(40)
    assert len(trained(few).losses) == 1
    assert "are free. Give" in refused(few, prune_rows=False)


def test_graphs_that_autograd_does_not_keep_do_not_count(wide, free):
    free(40)
    (needed,) = re.findall(r"needs about ([\d.]+) MiB", refused(wide))
    free(float(needed) - 0.5)
    assert len(trained(wide, rematerialize=True).losses) == 1


def test_pages_of_a_store_that_are_read_in_order_do_not_count(wide, free, tmp_path):
    wide.save(tmp_path / "store")
    stored = dorylus.Graph.open(tmp_path / "store")
    attention = dorylus.gat(hidden=4, heads=2)  # transforms features before it gathers
    plan = dorylus.plan_memory(stored, attention, threads=1, memory="1GiB")
    free((plan.chosen.peak - 2 * MIB) / MIB)
    assert plan.verdict == "fits"
    assert len(trained(stored, attention).losses) == 1


@pytest.mark.parametrize(
    ("free_mib", "limit"), [(20 * 1024, "19GiB"), (6000, "5632MiB"), (500, "464MiB"), (14, "13MiB"), (0.2, "1MiB")]
)
def test_limits_are_round_and_leave_some_of_the_free_memory(free_mib, limit):
    assert room._text(room._round_limit(int(free_mib * MIB))) == limit
