import pytest

from dorylus.cli import functions as command
from dorylus.functions.deploy import aws, package
from dorylus.functions.deploy.package import Package
from dorylus.functions.deploy.plan import Found

SIZE = 27_000_000


@pytest.fixture(autouse=True)
def no_builds_and_no_calls(monkeypatch, tmp_path):
    """A package that is already built, and services that fail the test when they are called."""
    made = Package(tmp_path / "f.zip", "ab" * 32, SIZE, 3 * SIZE)
    monkeypatch.setattr(package, "build", lambda platform: made)
    monkeypatch.setattr(package, "needs_download", lambda platform: [])
    monkeypatch.setattr(
        "dorylus.functions.deploy.access.AwsAccess.client", lambda *given, **more: pytest.fail("called")
    )
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


@pytest.fixture
def deployments(monkeypatch):
    """Deployments that only record the desired state."""
    recorded = []

    class Deployment(aws.Deployment):
        def find(self):
            recorded.append(self.desired)
            return Found()

        def _carry_out(self, calls):
            for call in calls:
                self._announce(call)
            return list(calls)

    monkeypatch.setattr(aws, "Deployment", Deployment)
    return recorded


def test_a_dry_run_prints_every_call_and_makes_none(dorylus_program):
    code, out, _ = dorylus_program("functions", "deploy", "--dry-run", "--region", "eu-west-1", "--concurrency", 9)
    assert code == 0
    for operation in ("iam get_role", "iam create_role", "iam put_role_policy", "lambda create_function"):
        assert f". {operation}: " in out
    assert "zip of 27.0 MB (81.0 MB unpacked), sha256 abababababababab" in out
    assert "ReservedConcurrentExecutions = 9" in out
    assert "Nothing was called" in out


def test_a_dry_run_does_not_fetch_packages_for_another_platform(dorylus_program, monkeypatch):
    monkeypatch.setattr(package, "needs_download", lambda platform: ["numpy==2"])
    monkeypatch.setattr(package, "build", lambda platform: pytest.fail("built"))
    code, out, _ = dorylus_program("functions", "deploy", "--dry-run", "--region", "eu-west-1", "--python", "3.13")
    assert code == 0
    assert "not built yet: pip would fetch numpy==2 for Python 3.13 on " in out


def test_deploy_takes_the_desired_state_from_the_flags(dorylus_program, deployments):
    code, out, _ = dorylus_program(
        "functions", "deploy", "--name", "f", "--region", "eu-west-1", "--memory", 3008, "--timeout", 60,
        "--architecture", "arm64", "--python", "3.13", "--subnet", "s-1", "--subnet", "s-2", "--security-group", "g-1",
        "--tag", "project=x=y",
    )  # fmt: skip
    assert code == 0
    (desired,) = deployments
    assert (desired.config.memory_mb, desired.config.timeout_s) == (3008, 60)
    assert desired.config.platform.runtime == "python3.13"
    assert desired.config.subnets == ("s-1", "s-2")
    assert desired.config.tags == {"project": "x=y"}
    assert "lambda create_function: no such function" in out
    assert "f: done, with 4 calls" in out


def test_the_stand_in_gets_the_same_plan_for_this_machines_platform(dorylus_program, deployments):
    assert dorylus_program("functions", "deploy", "--target", "local")[0] == 0
    assert deployments[0].config.platform.runtime == "provided.al2023"


def test_status_reports_what_exists_and_what_deploy_would_do(dorylus_program, deployments):
    code, out, _ = dorylus_program("functions", "status", "--region", "eu-west-1")
    assert code == 0
    assert "function  dorylus is not there" in out
    assert "deploy would call lambda create_function: no such function" in out
    assert "function_active_v2" not in out


def test_destroy_prints_what_it_would_delete_and_deletes_what_exists(dorylus_program, deployments):
    code, out, _ = dorylus_program("functions", "destroy", "--dry-run", "--region", "eu-west-1")
    assert code == 0
    assert "lambda delete_function" in out
    assert "iam delete_role" in out
    code, out, _ = dorylus_program("functions", "destroy", "--region", "eu-west-1")
    assert (code, out) == (0, "dorylus: nothing to do\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["deploy", "--target", "azure"], "unknown target 'azure'"),
        (["deploy", "--dry-run"], "--region"),
        (["deploy", "--dry-run", "--region", "eu-centrl-1"], "Did you mean 'eu-central-1'"),
        (["deploy", "--region", "eu-west-1", "--endpoint-url", "http://127.0.0.1:1"], "--target local"),
        (["deploy", "--target", "local", "--region", "r"], "has neither"),
        (["deploy", "--target", "local", "--python", "3.12"], "with this Python"),
        (["deploy", "--target", "local", "--endpoint-url", "http://example.org"], "on this machine"),
        (["deploy", "--region", "eu-west-1", "--memory", "1"], "128 to 10240"),
        (["deploy", "--region", "eu-west-1", "--tag", "x"], "KEY=VALUE"),
        (["deploy", "--region", "eu-west-1", "--subnet", "s"], "give both"),
    ],
)
def test_invalid_arguments_are_refused_in_one_paragraph(dorylus_program, arguments, message):
    code, _, err = dorylus_program("functions", *arguments)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_help_names_the_three_commands(dorylus_program):
    code, out, _ = dorylus_program("functions", "--help")
    assert code == 0
    assert all(name in out for name in ("deploy", "status", "destroy"))
    assert command.HELP in out
