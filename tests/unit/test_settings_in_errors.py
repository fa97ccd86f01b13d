"""An error spells each setting as where it came from has it: a keyword, a flag, or a line of a run.toml."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import tomli_w

import dorylus
from dorylus.cli import main
from dorylus.cli.flags import MODEL_OPTIONS, dashed, spell_flag
from dorylus.errors import DeadlineError, DivergedError, given, spelled, toml_key
from dorylus.pools import PoolHandle, PoolSpec, ThreadsPool, register, unregister
from dorylus.runs import RunFolder, RunSpec
from dorylus.saga.builders import BUILDERS
from dorylus.training import Trainer

RING = "ring:num_vertices=20"
SOURCE = Path(dorylus.__file__).parent


@pytest.fixture
def refused(capsys, monkeypatch, tmp_path):
    """Runs a command that is refused, in an empty folder; returns its message."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        assert end.value.code == 2
        return capsys.readouterr().err.removeprefix("error: ").rstrip("\n")

    return run


def flags_of(settings):
    """The flags that give these settings."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from (word for key, each in value.items() for word in (f"--{dashed(name)}", f"{key}={each}"))
        elif value is True:
            yield f"--{dashed(name)}"
        else:
            yield from (f"--{dashed(name)}", str(value))


BAD = [  # settings, and what the message says of them as keywords, as flags and in a file
    ({"epochs": 0}, "epochs=0, but epochs is", "--epochs 0, but --epochs is", "epochs = 0, but epochs is"),
    ({"mode": "asynch"}, "mode='asynch' is unknown:", "--mode asynch is unknown:", "mode = 'asynch' is unknown:"),
    ({"pool": "mine"}, "pool='mine' is unknown:", "--pool mine is unknown:", "pool = 'mine' is unknown:"),
    (
        {"patience": 2, "eval_every": 0},
        "patience=2 with eval_every=0",
        "--patience 2 with --eval-every 0",
        "patience = 2 with eval_every = 0",
    ),
    (
        {"instance": "c5.larg"},
        "instance='c5.larg' is unknown:",
        "--instance c5.larg is unknown:",
        "instance = 'c5.larg' is unknown:",
    ),
    (
        {"price_book": "my.toml"},
        "price_book='my.toml' cannot be read:",
        "--price-book my.toml cannot be read:",
        "price_book = 'my.toml' cannot be read:",
    ),
    (
        {"partition": "metiss"},
        "partition='metiss' is unknown:",
        "--partition metiss is unknown:",
        "partition = 'metiss' is unknown:",
    ),
    (
        {"optimizer": "adma"},
        "optimizer='adma' is unknown:",
        "--optimizer adma is unknown:",
        "optimizer = 'adma' is unknown:",
    ),
    (
        {"lr_schedule": "never"},
        "lr_schedule='never' is unknown:",
        "--lr-schedule never is unknown:",
        "lr_schedule = 'never' is unknown:",
    ),
    (
        {"optimizer_options": {"lr": 3}},
        "optimizer_options has 'lr', but lr of Adam is a setting: use lr=3.",
        "--optimizer-options has 'lr', but lr of Adam is a setting: use --lr 3.",
        "optimizer_options has 'lr', but lr of Adam is a setting: use ",
    ),
    (
        {"elastic": True},
        "elastic=True with cluster='local'",
        "--elastic with --cluster local",
        "elastic = true with ",
    ),
    (
        {"address": "auto"},
        "address='auto' with cluster='local'",
        "--address auto with --cluster local",
        "address = 'auto' with ",
    ),
    ({"intervals": 21}, "intervals=21, but", "--intervals 21, but", "intervals = 21, but"),
    ({"servers": 500}, "servers=500, but", "--servers 500, but", "servers = 500, but"),
]


@pytest.mark.parametrize(("settings", "keyword", "flag", "line"), BAD, ids=[", ".join(each[0]) for each in BAD])
def test_a_bad_setting_is_spelled_as_it_was_given(refused, settings, keyword, flag, line):
    with pytest.raises(dorylus.DorylusError) as caught:
        dorylus.train(dorylus.ring(num_vertices=20), dorylus.gcn(), **settings)
    assert str(caught.value).startswith(keyword)
    assert refused("train", RING, *flags_of(settings)).startswith(flag)
    Path("mine.toml").write_text(tomli_w.dumps({"graph": {"source": RING}, "training": settings}))
    assert refused("train", "--config", "mine.toml").startswith(f"mine.toml: {line}")


@pytest.fixture
def edited(tmp_path):
    """A run that has ended, whose run.toml then gets other settings."""
    run_dir = tmp_path / "run"
    spec = RunSpec({"source": RING}, {"name": "gcn"})
    dorylus.train(spec.load_graph(), spec.build_model(), epochs=1, threads=1, spec=spec, run_dir=run_dir)

    def edit(**settings):
        run = RunFolder.open(run_dir)
        training = {**run.config.to_dict(), **settings}
        sections = {"graph": run.spec.graph, "model": run.spec.model, "training": training}
        for name, section in sections.items():
            sections[name] = {key: value for key, value in section.items() if value is not None and key != "run_dir"}
        (run_dir / "run.toml").write_text(tomli_w.dumps(sections))
        return run_dir

    return edit


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"epochs": 0}, "epochs = 0, but epochs is"),
        ({"elastic": True}, "elastic = true with cluster = 'local'"),
        ({"address": "auto"}, "address = 'auto' with cluster = 'local'"),
        ({"intervals": 21}, "intervals = 21, but"),
        ({"servers": 500}, "servers = 500, but"),
        ({"instance": "c5.larg"}, "instance = 'c5.larg' is unknown:"),
    ],
    ids=str,
)
def test_a_setting_of_the_run_that_is_resumed_is_spelled_as_in_its_file(refused, edited, settings, line):
    run_dir = edited(**settings)
    with pytest.raises(dorylus.ConfigError) as caught:
        dorylus.resume(run_dir)
    assert str(caught.value).startswith(f"{run_dir}/run.toml: {line}")
    assert refused("resume", run_dir).startswith(f"{run_dir}/run.toml: {line}")


def test_a_setting_that_is_changed_at_resuming_is_spelled_as_it_was_given(refused, edited):
    run_dir = edited(mode="async")
    with pytest.raises(dorylus.ConfigError, match=r"run\.toml: mode = 'async' with memory='1GiB':"):
        dorylus.resume(run_dir, memory="1GiB")
    message = refused("resume", run_dir, "--memory", "1GiB")
    assert message.startswith(f"{run_dir}/run.toml: mode = 'async' with --memory 1GiB:")
    with pytest.raises(dorylus.ConfigError, match=r"^servers=500, but"):
        dorylus.resume(run_dir, servers=500)
    assert refused("resume", run_dir, "--servers", 500).startswith("--servers 500, but")


def test_a_run_of_a_pool_that_is_not_registered_here_is_resumed_with_another_pool(tmp_path):
    register(PoolSpec(name="mine", help="", maker=lambda *_: PoolHandle(ThreadsPool()), runs_torch=True))
    graph, model, run_dir = dorylus.ring(num_vertices=20), dorylus.gcn(), tmp_path / "run"
    try:
        with Trainer(graph, model, epochs=2, threads=1, pool="mine", run_dir=run_dir, checkpoint_every=1) as trainer:
            trainer.run(1)
    finally:
        unregister("mine")
    with pytest.raises(dorylus.ConfigError, match=r"pool = 'mine' is unknown: .* is registered in each process"):
        dorylus.resume(run_dir, graph, model)
    assert len(dorylus.resume(run_dir, graph, model, pool="threads").losses) == 2


@pytest.mark.parametrize(
    ("flags", "section", "flag", "line"),
    [
        (["--hidden", "x"], {"hidden": "x"}, "--hidden x, but --hidden is", "hidden = 'x', but hidden is"),
        (["--dropout", "2"], {"dropout": 2}, "--dropout 2.0, but", "dropout = 2, but"),
        (
            ["--model-option", "residual=3"],
            {"residual": 3},
            "--model-option residual=3, but",
            "residual = 3, but",
        ),
    ],
    ids=["hidden", "dropout", "residual"],
)
def test_a_bad_option_of_the_model_is_spelled_as_it_was_given(refused, flags, section, flag, line):
    assert refused("train", RING, *flags).startswith(flag)
    Path("mine.toml").write_text(tomli_w.dumps({"graph": {"source": RING}, "model": section}))
    assert refused("train", "--config", "mine.toml").startswith(f"mine.toml: {line}")


def test_the_options_of_models_without_a_flag_are_known():
    options = {name for builder in BUILDERS.values() for name in inspect.signature(builder).parameters}
    assert options - {"hidden", "num_layers", "dropout", "heads"} == MODEL_OPTIONS


def test_an_unknown_setting_of_a_file_is_refused_with_the_file(refused):
    Path("mine.toml").write_text(tomli_w.dumps({"graph": {"source": RING}, "training": {"epoch": 3}}))
    message = refused("train", "--config", "mine.toml")
    assert message.startswith("mine.toml: unknown setting 'epoch'")
    assert "did you mean 'epochs'?" in message


SPELLED_OUT = re.compile(rf"\b({'|'.join(dorylus.RunConfig.names())})=[\"'{{\d]")
EXCEPTIONS = {  # texts that are not about a setting that a face gave
    "backends/native/dropout.py": "a seed of the kernel, not that of a run",
    "cli/doctor/__init__.py": "names of pools and of a setting in a table of findings",
    "graph/datasets/catalogue.py": "the options of a generator have this form in every interface",
    "saga/dense.py": "an argument of a function, below all interfaces",
}


def literals(source):
    """The texts in a module that are no docstrings; an expression within an f-string stands as ``{``."""
    tree = ast.parse(source)
    passed = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed.update(map(id, node.values))
            yield "".join(each.value if isinstance(each, ast.Constant) else "{" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            yield node.value


def test_an_error_that_ends_a_run_keeps_the_settings_of_its_cause():
    with Trainer(dorylus.ring(num_vertices=20), dorylus.gcn(), threads=1) as trainer:
        late = trainer._given_up(DeadlineError(f"no answer within {given('deadline_s', 2.0)}."))
        diverged = trainer._diverged(DivergedError("the loss of epoch 1 is nan"))
    assert str(late) == "no answer within deadline_s=2.0. The run has no folder, so its 0 epochs are lost: use run_dir."
    flags = "no answer within --deadline-s 2.0. The run has no folder, so its 0 epochs are lost: use --run-dir."
    assert spelled(late.message, spell_flag) == flags
    assert "Train again with lr well below 0.01" in str(diverged)
    assert "Train again with --lr well below 0.01" in spelled(diverged.message, spell_flag)


LONG_NAMES = [name for name in dorylus.RunConfig.names() if "_" in name]  # the others are English words, too
NAMED = re.compile(rf"(?<![\w.(])({'|'.join(LONG_NAMES)})(?![\w(/]|\.\w)")
FLAG = re.compile(r"(?<!pip install )--[a-z][a-z-]+")
MAKES_ERROR = re.compile(r"(Error|Refused|Fault|_failure|cannot_write)$")
WITH_FLAGS = {  # refusals outside cli/ that name flags of the one command they are about
    "functions/deploy/access.py",
    "functions/deploy/aws.py",
    "functions/deploy/distributions.py",
    "training/assembly.py",  # flags of dorylus ingest, as the cure
}


def error_texts(source):
    """The texts of the errors that a module makes, without the settings that ``given`` names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and MAKES_ERROR.search(ast.unparse(node.func)):
            for argument in node.args:
                marked = {id(each) for call in ast.walk(argument) if isinstance(call, ast.Call) for each in call.args}
                texts = (
                    each for each in ast.walk(argument) if isinstance(each, ast.Constant) and id(each) not in marked
                )
                yield from (each.value for each in texts if isinstance(each.value, str))


def named_by_hand(source, is_command=False):
    """The settings and flags that error texts of a module name themselves."""
    patterns = [NAMED] if is_command else [NAMED, FLAG]
    return [found[0] for text in error_texts(source) for each in patterns for found in each.finditer(text)]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_message_names_a_setting_or_a_flag_itself(path):
    name = path.relative_to(SOURCE).as_posix()
    assert named_by_hand(path.read_text(), is_command=name.startswith("cli/") or name in WITH_FLAGS) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("raise ConfigError('choose another run_dir.')", ["run_dir"]),
        ("raise ConfigError(f'use a run_dir in {folder}')", ["run_dir"]),
        ("raise WriteError('give --run-dir')", ["--run-dir"]),
        ("def f():\n    return cannot_write(f'{path}: name a scratch_dir', error)", ["scratch_dir"]),
        ("raise ConfigError(f\"choose another {given('run_dir')}\")", []),
        ("raise ConfigError(unknown_value('weight_update', value, KNOWN))", []),
        ("raise ConfigError('dorylus.resume(run_dir, graph, model)')", []),
        ("HELP = 'give run_dir'", []),
    ],
)
def test_the_check_itself_finds_settings_named_by_hand(source, found):
    assert named_by_hand(source) == found


def test_no_message_spells_a_setting_with_its_value_itself():
    modules = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in SOURCE.rglob("*.py")}
    found = {name for name, source in modules.items() if any(map(SPELLED_OUT.search, literals(source)))}
    assert found - {"errors.py"} == EXCEPTIONS.keys()


def test_a_table_is_spelled_as_each_face_has_it():
    message = given("split", {"train": 0.8, "val": 0.5})
    assert spelled(message, spell_flag) == "--split train=0.8,val=0.5"
    assert spelled(message, toml_key) == "split = {'train' = 0.8, 'val' = 0.5}"
    assert spelled(message) == "split={'train': 0.8, 'val': 0.5}"
