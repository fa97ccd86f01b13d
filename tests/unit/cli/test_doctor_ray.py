import ast
import json
import os
import queue
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dorylus.cli.doctor import cluster as survey_of
from dorylus.cli.doctor import probe
from dorylus.cli.doctor.cluster import Machine, Node, Pair, Survey, checks_of, room

VERSIONS = {"python": "3.11.7", "ray": "2.60.0", "torch": "2.13.0", "pyzmq": "27.3.0", "dorylus": "0.1.0"}
GIB = 2**30
HERE = Machine(versions=VERSIONS, kernels="avx2", memory_bytes=8 * GIB, free_memory_bytes=6 * GIB, token=True)
A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def node(name, *, cores=4, free_cores=4, **facts):
    facts = {"machine": HERE, "clock_off_s": 0.001, "clock_round_trip_s": 0.002, "object_store_bytes": GIB} | facts
    return Node(name=name, cores=cores, free_cores=free_cores, **facts)


def pairs_between(*names, **facts):
    return tuple(
        Pair(dials=one, dialled=other, **({"round_trip_s": 2e-4, "bytes_per_s": GIB} | facts))
        for one in names
        for other in names
    )


def healthy(*names):
    return Survey(driver=HERE, cluster=f"{A}:6379", nodes=tuple(map(node, names)), pairs=pairs_between(*names))


def with_node(survey, changed):
    return replace(survey, nodes=tuple(changed if each.name == changed.name else each for each in survey.nodes))


def with_pair(survey, changed):
    same = lambda each: (each.dials, each.dialled) == (changed.dials, changed.dialled)  # noqa: E731
    return replace(survey, pairs=tuple(changed if same(each) else each for each in survey.pairs))


def line(survey, name, **options):
    """The line of that name."""
    (found,) = [check for check in checks_of(survey, **{"threads": 1, **options}) if check.name == name]
    return found


def result_of(survey, name, **options):
    found = line(survey, name, **options)
    return found.status, f"{found.found} – {found.cure}"


@pytest.mark.parametrize("names", [[A], [A, B, C]])
def test_nothing_is_wrong_with_a_healthy_cluster(names):
    checks = checks_of(healthy(*names), threads=1)
    assert [check.name for check in checks] == [
        "ray", "nodes", "versions", "cores", "memory", "network", "speed", "clock", "token",
    ]  # fmt: skip
    assert {(check.status, check.cure) for check in checks} == {("ok", "")}


@pytest.mark.parametrize(
    ("trouble", "cluster", "cure"),
    [
        ("there is no cluster on this machine", "", "ray start --head --node-ip-address"),
        ("no answer within 30 s: InvalidAuthToken", "", "the cluster's RAY_AUTH_TOKEN"),
        ("Version mismatch: The cluster was started with Ray 2.50", "", "install here what the cluster has"),
        ("no survey within 300 s", f"{A}:6379", "try again"),
    ],
)
def test_without_a_cluster_only_the_cure_is_reported(trouble, cluster, cure):
    (only,) = checks_of(Survey(driver=HERE, trouble=trouble, cluster=cluster))
    assert (only.name, only.status, only.found) == ("ray", "fail", f"2.60.0, but {trouble}")
    assert cure in only.cure


def test_a_node_that_does_not_answer_is_named_and_the_others_are_checked():
    survey = with_node(healthy(A, B), node(B, machine=None, trouble="no answer within 60 s", clock_off_s=None))
    survey = replace(survey, pairs=pairs_between(A))
    assert line(survey, "nodes").status == "fail"
    assert line(survey, "nodes").found == f"{B}: no answer within 60 s"
    assert line(survey, "versions").status == "ok"
    assert result_of(survey, "network")[0] == "warn"
    assert f"not tried on {B}" in result_of(survey, "network")[1]


@pytest.mark.parametrize(
    ("package", "version", "status", "message"),
    [
        ("dorylus", "0.0.9", "fail", f"{B} has dorylus 0.0.9, here 0.1.0 – install the same on every node: dorylus 0"),
        ("dorylus", "", "fail", f"{B} has no dorylus"),
        ("ray", "2.50.0", "fail", "ray 2.60.0"),
        ("python", "3.11.9", "fail", "python 3.11.7"),
        ("pyzmq", "", "fail", f"{B} has no pyzmq"),
        ("torch", "2.12.0", "warn", f"{B} has torch 2.12.0, here 2.13.0 – results may differ"),
    ],
)  # fmt: skip
def test_a_version_that_differs_on_a_node_is_named(package, version, status, message):
    other = replace(HERE, versions={**VERSIONS, package: version})
    found = result_of(with_node(healthy(A, B), node(B, machine=other)), "versions")
    assert found[0] == status
    assert message in found[1]
    assert A not in found[1]


def test_kernels_that_do_not_load_on_a_node_are_a_failure_and_others_than_ours_a_warning():
    broken = replace(HERE, kernels="", kernels_error="no GLIBC_2.38")
    status, message = result_of(with_node(healthy(A, B), node(B, machine=broken)), "versions")
    assert (status, f"{B} has kernels that do not load (no GLIBC_2.38)" in message) == ("fail", True)
    status, message = result_of(with_node(healthy(A, B), node(B, machine=replace(HERE, kernels="avx512"))), "versions")
    assert (status, f"{B} has kernels that use avx512, here avx2" in message) == ("warn", True)


def test_a_package_that_the_driver_lacks_too_is_a_failure():
    bare = replace(HERE, versions={**VERSIONS, "pyzmq": ""})
    survey = replace(healthy(A), driver=bare, nodes=(node(A, machine=bare),))
    assert result_of(survey, "versions") == ("fail", 'no pyzmq here – pip install "dorylus[ray]"')


@pytest.mark.parametrize(
    ("cores", "threads", "servers"),
    [([4, 4], 2, 4), ([4.5, 4], 2, 4), ([4, 4], 3, 2), ([4], 4, 1), ([3], 4, 0), ([], 1, 0), ([1, 1, 1], 1, 3)],
)
def test_graph_servers_fit_where_a_node_has_all_their_cores(cores, threads, servers):
    assert room(cores, threads) == servers


def test_cores_are_reported_per_node_with_the_servers_they_have_room_for():
    survey = with_node(healthy(A, B), node(B, free_cores=1))
    assert result_of(survey, "cores", threads=2) == (
        "ok",
        f"{A}: 4 of 4 free; {B}: 1 of 4 free; room for 2 graph servers of 2 threads, 1 on nodes of their own – ",
    )


@pytest.mark.parametrize(
    ("survey", "threads", "status", "cure"),
    [
        (with_node(healthy(A, B), node(B, cores=2, free_cores=2)), 3, "warn", f"{B} has 2: train with fewer --threads"),
        (replace(healthy(A), nodes=(node(A, free_cores=0),)), 1, "warn", "others use the cluster"),
        (healthy(A), 5, "fail", "train with fewer --threads"),
        (healthy(A, B), 5, "fail", "train with fewer --threads"),
    ],
)
def test_too_few_cores_are_reported_with_the_cure(survey, threads, status, cure):
    found = line(survey, "cores", threads=threads)
    assert found.status == status
    assert cure in found.cure


def test_a_head_without_cores_is_not_reported_as_too_small():
    assert line(with_node(healthy(A, B), node(A, cores=0, free_cores=0)), "cores", threads=2).status == "ok"


def test_without_threads_a_graph_server_has_the_cores_of_this_process():
    (cores,) = [each for each in checks_of(healthy(A)) if each.name == "cores"]
    assert f"of {len(os.sched_getaffinity(0))} thread" in cores.found


def test_little_memory_on_a_node_is_a_warning():
    survey = with_node(healthy(A, B), node(B, machine=replace(HERE, free_memory_bytes=GIB // 2)))
    status, message = result_of(survey, "memory")
    assert status == "warn"
    assert f"end other programs on {B}" in message
    assert f"{A}: 6.00 GiB of 8.00 GiB available, object store 1.00 GiB" in message


def test_nodes_that_do_not_reach_each_other_are_named_with_the_cure():
    shut = Pair(dials=A, dialled=B, error="timed out")
    status, message = result_of(with_pair(healthy(A, B, C), shut), "network")
    assert status == "fail"
    assert message.startswith(f"1 of 9 connections fail: {A} → {B} (timed out) – let TCP through")


def test_the_slowest_connection_is_reported_and_that_of_a_node_to_itself_does_not_count():
    survey = with_pair(healthy(A, B, C), Pair(dials=A, dialled=A, round_trip_s=9.0, bytes_per_s=1.0))
    survey = with_pair(survey, Pair(dials=B, dialled=C, round_trip_s=0.03, bytes_per_s=GIB))
    survey = with_pair(survey, Pair(dials=C, dialled=A, round_trip_s=1e-4, bytes_per_s=2**20))
    assert line(survey, "speed").found == f"at worst 30 ms there and back ({B} → {C}), 1.0 MiB/s ({C} → {A})"


def test_a_connection_on_which_no_large_message_arrives_is_a_warning():
    survey = with_pair(healthy(A, B), Pair(dials=A, dialled=B, round_trip_s=0.1, bytes_per_s=None))
    status, message = result_of(survey, "speed")
    assert status == "warn"
    assert f"8 MiB took too long: {A} → {B}" in message


@pytest.mark.parametrize(
    ("off_s", "round_trip_s", "status"),
    [(0.4, 0.0, "ok"), (0.6, 0.01, "warn"), (-0.6, 0.01, "warn"), (0.6, 0.3, "ok"), (-3600, 5.0, "warn")],
)
def test_a_clock_is_off_when_the_round_trip_does_not_explain_it(off_s, round_trip_s, status):
    survey = with_node(healthy(A, B), node(B, clock_off_s=off_s, clock_round_trip_s=round_trip_s))
    found = line(survey, "clock")
    assert found.status == status
    assert ("chrony" in found.cure, B in found.found) == (status == "warn",) * 2


def test_a_cluster_of_several_nodes_without_a_token_is_a_warning():
    open_to_all = replace(HERE, token=False)
    status, message = result_of(with_node(healthy(A, B), node(B, machine=open_to_all)), "token")
    assert status == "warn"
    assert f"{B} ask for none" in message
    assert "RAY_AUTH_MODE=token" in message
    assert line(replace(healthy(A), nodes=(node(A, machine=open_to_all),)), "token").status == "ok"


def test_a_store_must_be_readable_and_the_same_on_every_node():
    def survey(there):
        mine = replace(HERE, store="digest")
        base = replace(healthy(A, B), driver=mine, store="/data/graph", nodes=(node(A, machine=mine), node(B)))
        return with_node(base, node(B, machine=replace(HERE, **there)))

    assert line(survey({"store": "digest"}), "store").status == "ok"
    assert result_of(survey({"store": "another"}), "store")[0] == "fail"
    status, message = result_of(survey({"store_error": "no such folder"}), "store")
    assert (status, f"{B}: no such folder" in message) == ("fail", True)


def test_a_long_list_is_cut():
    names = [f"10.0.1.{number}" for number in range(20)]
    survey = replace(healthy(*names), nodes=tuple(node(each, machine=None, trouble="silent") for each in names))
    assert line(survey, "nodes").found.endswith("10.0.1.7: silent and 12 more")


def test_a_survey_survives_serialisation():
    survey = with_node(healthy(A, B), node(B, machine=None, trouble="silent"))
    assert Survey.from_dict(json.loads(json.dumps(survey.to_dict()))) == survey


def last_report(*lines):
    waiting = queue.SimpleQueue()
    for each in lines:
        waiting.put(json.dumps(each.to_dict()) if isinstance(each, Survey) else each)
    return survey_of._last_report(waiting)


def test_the_last_survey_counts():
    begun = Survey(driver=HERE)
    there = replace(begun, cluster=f"{A}:6379")
    assert last_report(begun, there, healthy(A)) == healthy(A)
    assert last_report(begun, replace(begun, trouble="none")) == replace(begun, trouble="none")


def test_a_timeout_names_what_did_not_answer(monkeypatch):
    monkeypatch.setattr(survey_of, "CONNECT_S", 0.0)
    monkeypatch.setattr(survey_of, "SURVEY_S", 0.0)
    begun = Survey(driver=HERE)
    there = replace(begun, cluster=f"{A}:6379")
    assert last_report(begun).trouble == "no answer of Ray within 0 s"
    assert last_report(begun, there) == replace(there, trouble="no survey within 0 s")
    assert "broke off" in last_report(begun, there, "").trouble


def test_errors_that_only_the_log_of_ray_holds_are_reported():
    silent = Survey(driver=HERE, trouble="no answer of Ray within 30 s")
    assert "InvalidAuthToken" in survey_of._explained(silent, "... Unauthenticated: InvalidAuthToken: ...\n").trouble
    broken = Survey(driver=HERE, trouble=survey_of.BROKEN_OFF)
    assert survey_of._explained(broken, "much\nFATAL: no shared memory\n").trouble.endswith("FATAL: no shared memory")
    assert survey_of._explained(healthy(A), "InvalidAuthToken") == healthy(A)


def test_the_probe_imports_only_the_standard_library():
    tree = ast.parse(Path(probe.__file__).read_text())
    names = [alias.name for each in tree.body if isinstance(each, ast.Import) for alias in each.names]
    names += [each.module for each in tree.body if isinstance(each, ast.ImportFrom)]
    assert [name for name in names if name.split(".")[0] not in sys.stdlib_module_names] == []


def test_the_probe_reports_this_machine(tmp_path):
    here = Machine(**probe.machine(str(tmp_path)))
    assert all(here.versions.values())
    assert here.memory_bytes > here.free_memory_bytes > 0
    assert (bool(here.kernels), here.kernels_error, here.store) == (True, "", "")
    assert "is not a store" in here.store_error


def test_an_unknown_cluster_is_refused_with_the_known_ones(dorylus_program):
    code, _, err = dorylus_program("doctor", "--cluster", "rya")
    assert code == 2
    assert "the known ones are local, ray. Did you mean 'ray'?" in err


@pytest.mark.parametrize("flags", [("--address", "10.0.0.1:6379"), ("--threads", "2"), ("--store", "graph")])
def test_flags_about_a_cluster_need_one(dorylus_program, flags):
    code, _, err = dorylus_program("doctor", *flags)
    assert code == 2
    assert "add --cluster ray" in err


@pytest.mark.parametrize(("survey", "code"), [(healthy(A), 0), (Survey(driver=HERE, trouble="no cluster"), 1)])
def test_the_command_ends_with_1_when_something_is_broken(dorylus_program, monkeypatch, survey, code):
    requested = []
    monkeypatch.setattr(survey_of, "collect", lambda *arguments: requested.append(arguments) or survey)
    found, out, _ = dorylus_program("doctor", "--cluster", "ray", "--address", "a:1", "--threads", "1", "--store", "g")
    assert found == code
    assert requested == [("a:1", str(Path("g").resolve()))]
    assert out.splitlines()[-1] == ("1 failed" if code else "fit to train")


def test_without_ray_the_cure_is_reported(dorylus_program, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, _ = dorylus_program("doctor", "--cluster", "ray")
    assert code == 1
    assert 'not installed – pip install "dorylus[ray]"' in out
