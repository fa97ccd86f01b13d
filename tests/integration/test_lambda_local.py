"""The function on this machine's stand-in for AWS Lambda: deployed by the same plan, invoked through the same boto3."""

import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from dense_tasks import answered
from function_runs import losses_here, losses_on

from dorylus.cli import main
from dorylus.errors import ConfigError
from dorylus.functions.deploy.access import AwsAccess
from dorylus.functions.deploy.aws import Deployment
from dorylus.functions.deploy.config import FunctionConfig, on_this_machine
from dorylus.functions.deploy.local import LocalFunctions
from dorylus.functions.deploy.package import build
from dorylus.functions.deploy.plan import deploy_calls
from dorylus.functions.program_cache import ProgramCache
from dorylus.pools.aws_lambda import LambdaInvoker, local_functions_invoker
from dorylus.pools.functions.functions_pool import functions_pool
from dorylus.pools.functions.invocations import FunctionsConfig
from dorylus.pools.pool import Lost, Throttled, Unavailable
from dorylus.wire.frames import pack, unpack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="functions run on Linux")

TOLERANCE = 1e-4
TIMEOUT_S = 30.0
CRASH = "crash"  # a task that ends its process
SLEEP = "sleep"  # a task that takes longer than the time limit
SABOTEUR = f'''
import os, time
from dorylus.functions import aws_lambda
from dorylus.wire.frames import unpack
from base64 import b64decode

def handler(event, context):
    task = unpack(b64decode(event["frame"])).header.get("task")
    if task == "{CRASH}":
        os._exit(3)
    if task == "{SLEEP}":
        time.sleep(60)
    return aws_lambda.handler(event, context)
'''


@pytest.fixture(scope="module")
def package():
    """Packed once for all tests of this session, in its cache folder."""
    return build(on_this_machine())


@pytest.fixture(scope="module")
def local(package):
    with LocalFunctions(package=package) as functions:
        yield functions


@pytest.fixture(scope="module")
def programs():
    """Exports take seconds: all tests of the session share them."""
    return ProgramCache()


@pytest.fixture
def invoker(local):
    made = LambdaInvoker(local.access, local.config.name)
    yield made
    made.close()


def request(task="t", **header):
    return b"".join(pack({"task": task, "program": "0" * 64, "columns": {}, **header}, {}))


def test_a_deployment_is_complete_and_the_second_one_finds_nothing_to_do(local):
    found = Deployment(local.desired, local.access).find()
    assert found.function["State"] == "Active"
    assert found.function["CodeSha256"] == local.desired.package.code_sha256
    assert found.tags == {"managed-by": "dorylus"} == found.role_tags
    assert Deployment(local.desired, local.access).deploy() == []


def test_a_changed_desired_state_is_deployed_and_destroy_removes_everything(local):
    config = FunctionConfig(name="other", platform=on_this_machine(), memory_mb=512, concurrency=3)
    desired = replace(local.desired, config=config)
    assert [call.operation for call in Deployment(desired, local.access).deploy()][-1] == "put_function_concurrency"
    assert Deployment(desired, local.access).deploy() == []
    changed = replace(desired, config=replace(config, memory_mb=1024, concurrency=None, tags={"project": "x"}))
    made = [call.operation for call in Deployment(changed, local.access).deploy()]
    assert made == [
        "tag_role",
        "update_function_configuration",
        "function_updated_v2",
        "tag_resource",
        "delete_function_concurrency",
    ]
    found = Deployment(changed, local.access).find()
    assert (found.function["MemorySize"], found.concurrency, found.tags["project"]) == (1024, None, "x")
    assert deploy_calls(changed, found) == []
    assert len(Deployment(changed, local.access).destroy()) == 3
    assert Deployment(changed, local.access).find().function is None
    assert Deployment(changed, local.access).destroy() == []


def test_a_function_that_dorylus_did_not_make_is_neither_changed_nor_destroyed(local, package):
    iam, service = local.access.client("iam"), local.access.client("lambda")
    role = iam.create_role(RoleName="theirs", AssumeRolePolicyDocument='{"Version": "2012-10-17", "Statement": []}')
    service.create_function(
        FunctionName="theirs", Runtime="provided.al2023", Handler="x.y", Role=role["Role"]["Arn"],
        Code={"ZipFile": package.read()},
    )  # fmt: skip
    desired = replace(local.desired, config=FunctionConfig(name="theirs", platform=on_this_machine()))
    with pytest.raises(ConfigError, match="called theirs that Dorylus did not make"):
        Deployment(desired, local.access).deploy()
    assert Deployment(desired, local.access).destroy() == []
    assert service.get_function(FunctionName="theirs")["Configuration"]["Handler"] == "x.y"


@pytest.mark.parametrize("path", ["inline", "direct"])
def test_a_run_gives_the_losses_of_threads(local, programs, path):
    notes = []
    pool = functions_pool(
        LambdaInvoker(local.access, local.config.name),
        FunctionsConfig(data_path=path, timeout_s=TIMEOUT_S, max_invocations=4),
        cache=programs,
        note=lambda what, **details: notes.append((what, details.get("path"))),
    )
    assert losses_on(pool, "gcn") == pytest.approx(losses_here("gcn"), abs=TOLERANCE)
    usage = sum(list(pool.usage().values())[1:], start=next(iter(pool.usage().values())))
    assert notes[0] == ("data_path", path)
    assert usage.invocations >= 9
    assert usage.billed_ms >= usage.invocations  # at least a millisecond each
    assert usage.duplicates == 0


def test_an_answer_has_the_billed_time_and_whether_it_was_a_cold_start(local):
    fresh = replace(local.desired, config=FunctionConfig(name="fresh", platform=on_this_machine()))
    Deployment(fresh, local.access).deploy()
    invoker = LambdaInvoker(local.access, "fresh")
    cold, warm = (invoker.invoke(request(), TIMEOUT_S) for _ in range(2))
    invoker.close()
    assert unpack(cold.content).header["missing"] == "0" * 64
    assert (cold.cold, warm.cold) == (True, False)
    assert cold.billed_ms > warm.billed_ms >= 1


def test_the_command_line_deploys_reports_the_status_and_destroys(local, capsys):
    service = ("--target", "local", "--endpoint-url", local.access.endpoint_url, "--name", "by-hand")

    def run(command):
        with pytest.raises(SystemExit) as end:
            main(["functions", command, *service])
        assert not end.value.code
        return capsys.readouterr().out

    assert "done, with 4 calls" in run("deploy")
    assert "by-hand: nothing to do" in run("deploy")
    status = run("status")
    assert "by-hand: Active, provided.al2023" in status
    assert "as desired" in status
    assert "done, with 3 calls" in run("destroy")
    assert "by-hand is not there" in run("status")


def test_a_function_that_is_not_there_is_unavailable_and_the_message_gives_the_cure(local):
    invoker = LambdaInvoker(local.access, "absent")
    with pytest.raises(Unavailable, match=r"no function absent .* dorylus functions deploy"):
        invoker.invoke(request(), TIMEOUT_S)
    invoker.close()


def test_a_service_that_is_down_is_unavailable():
    invoker = LambdaInvoker(AwsAccess("us-east-1", "http://127.0.0.1:9"))
    with pytest.raises(Unavailable, match="Check the region and the network"):
        invoker.invoke(request(), TIMEOUT_S)
    invoker.close()


@pytest.fixture(scope="module")
def saboteur(package, tmp_path_factory):
    """A stand-in whose function, one at a time, crashes or sleeps on request."""
    import hashlib
    import shutil
    import zipfile

    path = shutil.copy(package.path, tmp_path_factory.mktemp("saboteur") / "sabotaged.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("saboteur.py", SABOTEUR)
    sabotaged = replace(package, path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    config = FunctionConfig(name="saboteur", platform=on_this_machine(), concurrency=1, timeout_s=2)
    with LocalFunctions(config, package=sabotaged) as functions:
        service = functions.access.client("lambda")
        service.update_function_configuration(FunctionName="saboteur", Handler="saboteur.handler")
        service.get_waiter("function_updated_v2").wait(FunctionName="saboteur", WaiterConfig={"Delay": 1})
        yield functions


def in_background(invoker):
    """An invocation that sleeps, soon under way; its exception is in the list once the thread ends."""
    raised = []

    def invoke():
        while not raised:
            try:
                invoker.invoke(request(SLEEP), TIMEOUT_S)
            except Throttled:  # another invocation was there first
                continue
            except Exception as error:
                raised.append(error)

    thread = threading.Thread(target=invoke)
    thread.start()
    return thread, raised


def invoked_until(fault, invoker):
    """Invokes until the service answers with this fault: an invocation under way may not have arrived yet."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            invoker.invoke(request(), TIMEOUT_S)
        except fault as found:
            return found
    raise AssertionError(f"no {fault.__name__} within {TIMEOUT_S} s")


def test_a_function_that_crashes_or_runs_out_of_time_is_lost_and_the_next_call_works(saboteur):
    invoker = LambdaInvoker(saboteur.access, "saboteur")
    with pytest.raises(Lost, match=r"Runtime\.ExitError"):
        invoker.invoke(request(CRASH), TIMEOUT_S)
    assert "missing" in unpack(invoker.invoke(request(), TIMEOUT_S).content).header
    with pytest.raises(Lost, match=r"Sandbox\.Timedout.*timed out after 2"):
        invoker.invoke(request(SLEEP), TIMEOUT_S)
    with pytest.raises(Lost, match=r"no answer within 0\.3 s"):
        invoker.invoke(request(SLEEP), 0.3)
    invoker.close()


def test_one_call_more_than_is_reserved_is_throttled_with_the_time_to_wait(saboteur):
    invoker = LambdaInvoker(saboteur.access, "saboteur")
    thread, raised = in_background(invoker)
    fault = invoked_until(Throttled, invoker)
    assert fault.retry_after_s == 1.0
    thread.join(TIMEOUT_S)
    assert isinstance(raised[0], Lost)  # its own time ran out
    invoker.close()


def test_closing_an_invoker_ends_invocations_under_way(saboteur):
    invoker = LambdaInvoker(saboteur.access, "saboteur")
    thread, raised = in_background(invoker)
    watcher = LambdaInvoker(saboteur.access, "saboteur")
    invoked_until(Throttled, watcher)
    watcher.close()
    start = time.monotonic()
    invoker.close()
    thread.join(TIMEOUT_S)
    assert time.monotonic() - start < 1.0  # the function sleeps on until its 2 s are over
    assert [str(error) for error in raised] == ["the pool is closed: the invocation was abandoned."]
    with pytest.raises(Lost, match="closed"):
        invoker.invoke(request(), TIMEOUT_S)


def alive(group):
    """Whether any process of a group runs; an ended one may be a zombie until its parent reads the exit code."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


def test_closing_ends_the_service_its_functions_and_their_files():
    invoker = local_functions_invoker()
    invoker.invoke(request(), TIMEOUT_S)
    pid, folder = invoker._local.pid, invoker._local._folder
    assert alive(pid)
    assert any(folder.iterdir())
    invoker.close()
    assert not alive(pid)
    assert not folder.exists()


def test_the_service_ends_with_the_process_that_started_it(package, tmp_path):
    program = f"""
import os
from pathlib import Path
from dorylus.functions.deploy.local import LocalFunctions
from dorylus.functions.deploy.package import Package
local = LocalFunctions(package=Package(Path({str(package.path)!r}), {package.sha256!r}, 0, 0))
print(local.pid, local._folder, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    pid, folder = done.stdout.split()
    deadline = time.monotonic() + TIMEOUT_S
    assert done.returncode == -9
    while (alive(int(pid)) or Path(folder).exists()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(int(pid))
    assert not Path(folder).exists()


def test_the_service_listens_on_loopback_only_and_gets_nothing_of_our_environment(local):
    port = urlsplit(local.access.endpoint_url).port
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = {line[1] for line in listening if line[3] == "0A" and line[1].endswith(f":{port:04X}")}
    assert ours == {f"0100007F:{port:04X}"}
    environment = Path(f"/proc/{local.pid}/environ").read_text().split("\0")
    names = {each.partition("=")[0] for each in environment if each}
    assert names == {"PATH", "HOME", "TMPDIR", "BIND_HOST", "GATEWAY_PORT", "LOG_LEVEL"}


def test_a_real_task_is_answered_as_torch_does(invoker):
    assert answered(lambda frame: invoker.invoke(frame, TIMEOUT_S).content)["task"] == "task-1"
