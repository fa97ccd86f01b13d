"""The handler on the direct path: it fetches from ports and pushes to them. The ports here answer without a socket."""

import numpy as np
import pytest
import small_programs as small
from fake_ports import FakePorts, weights
from small_programs import numbers

from dorylus.functions.handler import Handler
from dorylus.functions.invocation import DirectTask, Invocation, Ports
from dorylus.wire.frames import pack, unpack

ROWS = {"rows.0": numbers(1, 10, 3), "cotangent.0": numbers(2, 10, 2)}


def the_ports(program=None, part_rows=4, rows=None):
    return FakePorts(program or small.gradient(), rows or ROWS, weights(), part_rows)


def run(ports, handler=None, task="t", version="v1", arrays=None, **options):
    handler = handler or Handler(links=ports.links())
    direct = DirectTask(Ports("rows", "weights", {}), 10, ports.part_rows, version, **options)
    invocation = Invocation(task, ports.program.hash, direct=direct)
    return unpack(handler.handle(b"".join(pack(invocation.to_header(), arrays or {}))))


@pytest.mark.parametrize("part_rows", [1, 4, 10, 99])
def test_outputs_are_pushed_part_by_part_and_sums_once(part_rows):
    ports = the_ports(part_rows=part_rows)
    answer = run(ports)
    assert "error" not in answer.header
    assert answer.arrays == {}
    pushed = np.concatenate([ports.pushed[part]["input_grad.0"] for part in sorted(ports.pushed)])
    np.testing.assert_allclose(pushed, ROWS["cotangent.0"] @ weights()["weight.w"].T, rtol=1e-5)
    np.testing.assert_allclose(
        ports.sums["weight_grad.w"], ROWS["rows.0"].T @ ROWS["cotangent.0"], rtol=1e-4, atol=1e-5
    )


def test_with_streaming_the_next_part_is_requested_before_one_is_computed():
    ports = the_ports()
    run(ports)
    order = [what for what in ports.requests if "rows" in what or what.startswith("take")]
    assert order == [
        "rows0",
        "rows1",
        "got rows0",
        "take0",
        "rows2",
        "got rows1",
        "take1",
        "got rows2",
        "take2",
        "take",
    ]


def test_the_first_part_travels_while_program_and_weights_are_fetched():
    ports = the_ports()
    run(ports)
    assert ports.requests[:4] == ["rows0", "program", "got program", "weights"]


def test_without_streaming_everything_is_fetched_first_and_pushed_last():
    ports = the_ports()
    run(ports, stream=False)
    order = [what for what in ports.requests if "rows" in what or what.startswith("take")]
    assert order[:6] == ["rows0", "rows1", "rows2", "got rows0", "got rows1", "got rows2"]
    assert order[6:] == ["take0", "take1", "take2", "take"]


def test_every_push_is_acknowledged_before_the_task_is_called_done():
    ports = the_ports()
    run(ports)
    assert {"got take0", "got take1", "got take2", "got take"} <= set(ports.requests)


def test_program_weights_and_connections_are_kept_for_the_next_task():
    ports = the_ports()
    handler = Handler(links=ports.links())
    run(ports, handler)
    ports.requests.clear()
    run(ports, handler, task="next")
    assert not {"program", "weights"} & set(ports.requests)
    assert ports.dialled == ["rows", "weights"]


def test_another_version_of_the_weights_is_fetched_again():
    ports = the_ports()
    handler = Handler(links=ports.links())
    run(ports, handler)
    ports.weights = {"weight.w": 2 * weights()["weight.w"]}
    run(ports, handler, version="v2")
    np.testing.assert_allclose(
        ports.pushed[0]["input_grad.0"], 2 * ROWS["cotangent.0"][:4] @ weights()["weight.w"].T, rtol=1e-5
    )


def test_whole_arrays_come_with_the_invocation_and_a_task_may_have_only_sums():
    ports = the_ports(small.loss(), rows={"rows.0": ROWS["rows.0"]})
    run(ports, arrays={"total": np.float32(2).reshape(())})
    assert ports.pushed == {}
    np.testing.assert_allclose(ports.sums["loss"], (ROWS["rows.0"] ** 2).sum() / 2, rtol=1e-5)


def test_an_answer_for_a_task_that_is_over_is_of_kind_refused():
    ports = the_ports()
    ports.over = True
    answer = run(ports)
    assert answer.header["kind"] == "refused"


def test_a_port_that_does_not_answer_is_a_wire_error_and_is_dialled_again():
    ports = the_ports()
    handler = Handler(links=ports.links())
    ports.gone = True
    assert run(ports, handler).header["kind"] == "wire"
    ports.gone = False
    assert "error" not in run(ports, handler).header
    assert ports.dialled == ["rows", "weights"] * 2


@pytest.mark.parametrize("gone", [False, True])
def test_a_probe_reports_whether_the_ports_can_be_reached(gone):
    ports = the_ports()
    ports.gone = gone
    request = {"probe": True, **Ports("rows", "weights", {}).to_header()}
    answer = unpack(Handler(links=ports.links()).handle(b"".join(pack(request, {}))))
    assert answer.header["reached"] is not gone
