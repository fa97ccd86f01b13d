import threading
from importlib.metadata import PackageNotFoundError

import pytest
import torch
import torch.nn.functional as f
from small_calls import Runs, Two, call_of
from small_programs import forward
from torch import nn

import dorylus.functions.export as exporting
from dorylus.errors import ConfigError, TrainingError
from dorylus.functions.export import Exports, export
from dorylus.functions.program import ExportedProgram
from dorylus.functions.program_cache import ProgramCache
from dorylus.functions.pure import Pure
from dorylus.functions.translate import ExportError, translate
from dorylus.saga.dense import Mode

DEADLINE_S = 30


@pytest.fixture
def translations(monkeypatch):
    """Replaces translation by an instant one without a check; lists the calls that were translated."""
    seen = []

    def instead(pure):
        seen.append(pure.call)
        return ExportedProgram.of(f"program {len(seen)}".encode(), pure.inputs, pure.outputs)

    monkeypatch.setattr(exporting, "translate", instead)
    monkeypatch.setattr(exporting, "disagreement", lambda pure, program: None)
    return seen


def doubled(module, y):
    return y * 2


def test_a_program_takes_what_it_needs_and_gives_the_requested_outputs(capfd):
    """One export of each kind; each is checked against torch as it is made, and nothing is printed meanwhile."""
    programs = {mode: export(call_of(Two(), (2, 3), mode, needs_grad=(True, False))) for mode in Mode}
    used = {"weight.mix.weight", "weight.mix.bias", "weight.again.bias", "weight.frozen"}
    rows, labels = {"rows.0", "rows.1"}, {"labels", "total"}
    grads = {"input_grad.0", "weight_grad.mix.weight", "weight_grad.mix.bias", "weight_grad.again.bias"}
    assert set(programs[Mode.FORWARD].inputs) == rows | used
    assert set(programs[Mode.FORWARD].outputs) == {"output.0", "output.1"}
    assert set(programs[Mode.GRADIENT].inputs) == rows | {"cotangent.0", "cotangent.1"} | used
    assert set(programs[Mode.GRADIENT].outputs) == grads
    assert set(programs[Mode.LOSS].inputs) == rows | labels | used
    assert set(programs[Mode.LOSS].outputs) == grads | {"loss"}
    for program in programs.values():
        assert b"site-packages" not in program.content
        assert b"small_calls" not in program.content
    assert capfd.readouterr() == ("", "")


class Biased(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return (x + self.bias).view(-1, 2, 2).mean(1)


def test_rows_whose_values_a_gradient_does_not_depend_on_are_no_input():
    program = export(call_of(Biased(), [4], Mode.GRADIENT))
    assert program.inputs == ("cotangent.0",)
    assert program.outputs == ("input_grad.0", "weight_grad.bias")


def test_a_task_with_nothing_to_give_back_has_a_program_without_outputs(translations):
    call = call_of(Two().requires_grad_(False), (2, 3), Mode.GRADIENT, needs_grad=(False, False))
    assert export(call) == Exports().program(call) == ExportedProgram.of(b"", (), ())
    assert translations == []


def branches(module, y):
    return y if y.sum() > 0 else -y


def counts(module, y):
    module.count.add_(1)
    return y * module.count


REFUSED = {
    "data-dependent control flow": (branches, "depends on the values in a tensor (aten._local_scalar_dense"),
    "a loop over rows": (lambda m, y: torch.stack([row * 2 for row in y]), "depend on the number of rows"),
    "an operation ONNX lacks": (lambda m, y: torch.cummax(y, 1)[0], "ONNX has nothing for its operation aten.cummax"),
    "a gradient ONNX lacks": (
        lambda m, y: f.avg_pool1d(y[:, None], 2)[:, 0],
        "ONNX has nothing for its operation aten.avg_pool2d_backward",
    ),
    "dropout": (lambda m, y: f.dropout(y, 0.5, training=True), "aten.native_dropout draws random numbers"),
    "running statistics": (
        lambda m, y: f.batch_norm(y, m.count, m.count + 1, training=True),
        "aten._native_batch_norm_legit changes a tensor that the module keeps",
    ),
    "a counter": (counts, "aten.add_.Tensor changes a tensor that the module keeps"),
    "a batch norm": (lambda m, y: y - y.mean(0), "a row's output depends on which rows come with it"),
    "a size that changes what is done": (
        lambda m, y: y if len(y) > 20 else -y,
        "its program does not do what torch does: with 1 rows",
    ),
    "numpy": (
        lambda m, y: y * torch.from_numpy(y.detach().numpy()),
        "following it fails: RuntimeError: .numpy() is not supported",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_the_error_of_a_body_that_cannot_be_exported_names_its_layer_and_operation(why):
    function, reason = REFUSED[why]
    call = call_of(Runs(function), [6], Mode.GRADIENT, label="apply_vertex of layer 2 (Mine)")
    with pytest.raises(ExportError) as caught:
        export(call, torch_pools=("threads", "ray"))
    message = str(caught.value)
    assert message.startswith("the gradient task of apply_vertex of layer 2 (Mine) cannot be exported for functions")
    assert reason in message
    assert message.endswith("change the body, or run it with pool='threads' or pool='ray'.")


def test_complex_numbers_inside_a_body_are_allowed():
    assert export(call_of(Runs(lambda m, y: torch.fft.fft(y).real), [6])).outputs == ("output.0",)


def test_a_program_that_does_not_do_what_torch_does_is_an_error(monkeypatch):
    wrong = export(call_of(Runs(lambda module, y: y * 2.001), [6]))
    monkeypatch.setattr(exporting, "translate", lambda pure: wrong)
    with pytest.raises(ExportError, match=r"with 1 rows output.0 differs from torch's by up to 0\.00"):
        export(call_of(Runs(doubled), [6]))


def test_a_program_that_gives_something_else_is_an_error(monkeypatch):
    monkeypatch.setattr(exporting, "translate", lambda pure: forward())
    with pytest.raises(ExportError):
        export(call_of(Two(), (2, 3)))


def test_the_same_task_gives_the_same_bytes():
    assert len({translate(Pure(call_of(Runs(doubled), [6]))).hash for _ in range(2)}) == 1


def test_a_program_is_made_once_for_all_calls_like_it(translations):
    exports = Exports()
    call = call_of(Runs(doubled), [6])
    assert exports.program(call) is exports.program(call)
    assert exports.num_made == len(translations) == 1


def test_bodies_that_compute_the_same_share_a_program(translations):
    exports = Exports()
    first, second = (exports.program(call_of(Runs(doubled), [6])) for _ in range(2))
    other = exports.program(call_of(Runs(lambda module, y: y * 3), [6]))
    assert first is second
    assert other is not first
    assert len(translations) == 2


def test_threads_that_request_a_program_at_once_make_it_once(translations, monkeypatch):
    call, exports = call_of(Runs(doubled), [6]), Exports()
    under_way, both_wait, waits = threading.Event(), threading.Event(), []
    instead = exporting.translate

    def slow(pure):
        under_way.set()
        assert both_wait.wait(DEADLINE_S)
        return instead(pure)

    wait = exporting._waited

    def waited(future):
        waits.append(1)
        if len(waits) == 2:
            both_wait.set()
        return wait(future)

    monkeypatch.setattr(exporting, "translate", slow)
    monkeypatch.setattr(exporting, "_waited", waited)
    found = []
    threads = [threading.Thread(target=lambda: found.append(exports.program(call))) for _ in range(3)]
    threads[0].start()
    assert under_way.wait(DEADLINE_S)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(found) == 3
    assert len(set(map(id, found))) == 1
    assert len(translations) == 1


def test_a_thread_waits_for_an_export_no_longer_than_the_deadline(translations, monkeypatch):
    call, exports = call_of(Runs(doubled), [6]), Exports()
    monkeypatch.setattr(exporting, "_DEADLINE_S", 0.0)

    def request_again(pure):
        return exports.program(call)

    monkeypatch.setattr(exporting, "translate", request_again)
    with pytest.raises(TrainingError, match="another thread's export has not ended within 0 s"):
        exports.program(call)


def test_a_failure_is_reported_to_every_caller_with_the_label_of_its_body(translations, monkeypatch):
    def refuse(pure):
        raise ArithmeticError("too hard")

    monkeypatch.setattr(exporting, "translate", refuse)
    exports = Exports()
    first, second = (call_of(Runs(doubled), [6], label=f"body {name}") for name in "AB")
    for call in (first, second, first):
        with pytest.raises(ExportError, match=f"of {call.body.label} cannot be exported.*ArithmeticError: too hard"):
            exports.program(call)


def test_a_second_run_takes_the_program_from_disk(translations, tmp_path):
    made = Exports(ProgramCache(tmp_path)).program(call_of(Runs(doubled), [6]))
    second = Exports(ProgramCache(tmp_path))
    assert second.program(call_of(Runs(doubled), [6])) == made
    assert (second.num_made, len(translations)) == (0, 1)


def test_a_damaged_program_on_disk_is_made_again(translations, tmp_path):
    call = call_of(Runs(doubled), [6])
    Exports(ProgramCache(tmp_path)).program(call)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    again = Exports(ProgramCache(tmp_path)).program(call)
    assert again.content == b"program 2"
    assert Exports(ProgramCache(tmp_path)).program(call) == again


@pytest.mark.parametrize("package", ["torch", "onnx", "onnxscript", "onnxruntime"])
def test_a_program_of_other_versions_is_made_again(translations, tmp_path, monkeypatch, package):
    call = call_of(Runs(doubled), [6])
    Exports(ProgramCache(tmp_path)).program(call)
    found = exporting.version
    monkeypatch.setattr(exporting, "version", lambda name: "99" if name == package else found(name))
    Exports(ProgramCache(tmp_path)).program(call)
    assert len(translations) == 2


def test_a_missing_package_is_named_with_its_cure(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(exporting, "version", missing)
    with pytest.raises(ConfigError, match=r"not installed: pip install \"dorylus\[functions\]\""):
        Exports().program(call_of(Runs(doubled), [6]))
