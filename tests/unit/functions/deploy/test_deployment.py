import pytest
from botocore.exceptions import ClientError, WaiterError
from desired_states import ROLE_ARN, desired_state

from dorylus.functions.deploy.access import AwsAccess, local_access
from dorylus.functions.deploy.aws import Deployment
from dorylus.functions.deploy.config import DeployError


def refusal(code, message=""):
    return ClientError({"Error": {"Code": code, "Message": message}}, "X")


class Service:
    """Answers calls by name. It raises an answer that is an exception, and gives the items of a list in turn."""

    def __init__(self, calls, **answers):
        self._calls, self._answers = calls, answers

    def __getattr__(self, operation):
        def call(**arguments):
            self._calls.append((operation, arguments))
            answer = self._answers.get(operation, {})
            answer = answer.pop(0) if isinstance(answer, list) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def get_waiter(self, name):
        return type("Waiter", (), {"wait": getattr(self, name)})


class Services:
    """A fresh account, a clock that moves only during sleeps, and a deployment that uses them."""

    def __init__(self, folder, **answers):
        nothing = {
            "get_role": refusal("NoSuchEntity"),
            "get_role_policy": refusal("NoSuchEntity"),
            "get_function": refusal("ResourceNotFoundException"),
            "create_role": {"Role": {"Arn": ROLE_ARN}},
        }
        self.calls, self.messages, self.now_s = [], [], 0.0
        service = Service(self.calls, **(nothing | answers))
        (folder / "f.zip").write_bytes(b"the zip")
        self.deployment = Deployment(
            desired_state(folder), local_access(), self.messages.append,
            client=lambda name: service, clock=lambda: self.now_s, sleep=self.sleep,
        )  # fmt: skip

    def sleep(self, seconds):
        self.now_s += seconds

    def arguments(self, operation):
        return [arguments for name, arguments in self.calls if name == operation]


def test_a_deployment_looks_first_and_fills_in_the_zip_and_the_role(tmp_path):
    services = Services(tmp_path)
    made = services.deployment.deploy()
    assert [name for name, _ in services.calls[:3]] == ["get_role", "get_role_policy", "get_function"]
    (create,) = services.arguments("create_function")
    assert create["Code"] == {"ZipFile": b"the zip"}
    assert create["Role"] == ROLE_ARN
    (wait,) = services.arguments("function_active_v2")
    assert wait["WaiterConfig"]["MaxAttempts"] * wait["WaiterConfig"]["Delay"] <= 300
    assert made == services.messages


def test_an_existing_role_gives_its_arn(tmp_path):
    role = {"Role": {"Arn": "arn:there", "Tags": [{"Key": "managed-by", "Value": "dorylus"}]}}
    services = Services(tmp_path, get_role=role)
    services.deployment.deploy()
    assert services.arguments("create_function")[0]["Role"] == "arn:there"
    assert services.arguments("create_role") == []


def test_a_new_role_is_given_time_to_be_known(tmp_path):
    unknown = refusal("InvalidParameterValueException", "The role cannot be assumed by Lambda.")
    services = Services(tmp_path, create_function=[unknown, unknown, {}])
    services.deployment.deploy()
    assert services.now_s == 4.0


def test_a_role_that_is_never_known_ends_the_deployment_in_time(tmp_path):
    unknown = refusal("InvalidParameterValueException", "The role cannot be assumed by Lambda.")
    services = Services(tmp_path, create_function=unknown)
    with pytest.raises(DeployError, match="cannot be assumed"):
        services.deployment.deploy()
    assert 60 <= services.now_s <= 64


def test_any_other_refusal_is_reported_at_once(tmp_path):
    services = Services(tmp_path, create_function=refusal("InvalidParameterValueException", "Memory is odd."))
    with pytest.raises(DeployError, match=r"lambda create_function .*InvalidParameterValueException: Memory is odd\."):
        services.deployment.deploy()
    assert services.now_s == 0.0


def test_a_missing_permission_is_named_with_where_they_are_listed(tmp_path):
    services = Services(tmp_path, create_role=refusal("AccessDenied", "not authorised to perform iam:CreateRole"))
    with pytest.raises(DeployError, match=r"iam:CreateRole.*docs/functions\.md"):
        services.deployment.deploy()


def test_neither_an_error_nor_its_cause_holds_a_credential(tmp_path):
    services = Services(tmp_path, get_role=refusal("SignatureDoesNotMatch", "x-amz-security-token:SECRET"))
    with pytest.raises(DeployError) as caught:
        services.deployment.find()
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_function_that_never_becomes_active_ends_the_deployment(tmp_path):
    services = Services(tmp_path, function_active_v2=WaiterError("FunctionActiveV2", "Max attempts exceeded", {}))
    with pytest.raises(DeployError, match=r"function_active_v2 .*Max attempts exceeded"):
        services.deployment.deploy()


def test_without_the_right_to_read_tags_the_error_names_that_right(tmp_path):
    answer = {"Configuration": {}, "TagsError": {"ErrorCode": "AccessDeniedException", "Message": "no"}}
    services = Services(tmp_path, get_function=answer)
    with pytest.raises(DeployError, match="lambda:ListTags"):
        services.deployment.deploy()


def test_where_no_stand_in_runs_the_message_explains_how_to_start_one(tmp_path, monkeypatch):
    monkeypatch.setattr(AwsAccess, "is_listened_to", lambda access: False)
    with pytest.raises(
        DeployError, match=r"nothing answers at http://127\.0\.0\.1:4567: .*GATEWAY_PORT=4567 ministack"
    ):
        Deployment(desired_state(tmp_path), local_access("http://127.0.0.1:4567")).find()
