from dataclasses import replace

import botocore.session
import pytest
from botocore.validate import ParamValidator
from desired_states import FUNCTION_ARN, NETWORK, REGION, SETTINGS, changes, deployed, desired_state, every_call

from dorylus.errors import ConfigError
from dorylus.functions.deploy.config import on_aws
from dorylus.functions.deploy.package import Package
from dorylus.functions.deploy.plan import Found, RoleArn, Unbuilt, deploy_calls, destroy_calls, find_calls, policy


def operations(calls):
    return [call.operation for call in calls]


def test_from_nothing_a_role_comes_first_and_the_reservation_last():
    assert operations(deploy_calls(desired_state(concurrency=7), Found())) == [
        "create_role",
        "put_role_policy",
        "create_function",
        "function_active_v2",
        "put_function_concurrency",
    ]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_second_deployment_has_nothing_to_do(settings):
    assert changes(desired_state(**settings), desired_state(**settings)) == []


def filled(value):
    """Arguments as they go to boto3."""
    if isinstance(value, Package | Unbuilt):
        return b"zip"
    if isinstance(value, RoleArn):
        return "arn:aws:iam::123456789012:role/x"
    return {key: filled(each) for key, each in value.items()} if isinstance(value, dict) else value


def test_every_call_is_one_that_the_services_know_with_arguments_they_take():
    session = botocore.session.get_session()
    models = {service: session.get_service_model(service) for service in ("iam", "lambda")}
    waiters = session.get_waiter_model("lambda").waiter_names
    checked = set()
    for call in every_call():
        if call.waits:
            assert "".join(part.title() for part in call.operation.split("_")) in waiters
            continue
        name = "".join(part.title() for part in call.operation.split("_"))
        model = models[call.service].operation_model(name)
        report = ParamValidator().validate(filled(dict(call.arguments)), model.input_shape)
        assert not report.has_errors(), (call, report.generate_report())
        checked.add(call.operation)
    assert len(checked) == 15  # all that a plan may hold except a changed trust policy


def test_changed_code_is_uploaded_and_waited_for_before_settings_change():
    calls = changes(desired_state(content=b"old"), desired_state(content=b"new", memory_mb=512))
    assert operations(calls) == [
        "update_function_code",
        "function_updated_v2",
        "update_function_configuration",
        "function_updated_v2",
    ]
    assert calls[0].why == "the code is another"
    assert calls[2].arguments == {"FunctionName": "f", "MemorySize": 512}
    assert calls[2].why == "MemorySize is 1769, desired 512"


def test_another_processor_needs_other_code():
    (code, _) = changes(desired_state(), desired_state(platform=on_aws("arm64", "3.12")))
    assert code.arguments["Architectures"] == ["arm64"]
    assert "the architecture is x86_64, desired arm64" in code.why


def test_a_function_moves_into_a_network_and_out_again_with_the_rights_it_needs():
    into = changes(desired_state(), desired_state(**NETWORK))
    assert operations(into) == ["put_role_policy", "update_function_configuration", "function_updated_v2"]
    assert into[1].arguments["VpcConfig"] == {"SubnetIds": ["subnet-a", "subnet-b"], "SecurityGroupIds": ["sg-1"]}
    out = changes(desired_state(**NETWORK), desired_state())
    assert out[1].arguments["VpcConfig"] == {"SubnetIds": [], "SecurityGroupIds": []}


def test_the_role_may_write_its_own_log_and_nothing_else():
    (statement,) = policy(desired_state())["Statement"]
    assert all(action.startswith("logs:") for action in statement["Action"])
    assert all(f":logs:{REGION}:*:log-group:/aws/lambda/f" in resource for resource in statement["Resource"])


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")])
def test_other_partitions_have_names_of_their_own(region, partition):
    resource = policy(replace(desired_state(), region=region))["Statement"][0]["Resource"][0]
    assert resource.startswith(f"arn:{partition}:logs:{region}:")


def test_a_reservation_is_changed_and_taken_back():
    assert operations(changes(desired_state(concurrency=7), desired_state(concurrency=8))) == [
        "put_function_concurrency"
    ]
    (back,) = changes(desired_state(concurrency=7), desired_state())
    assert (back.operation, back.why) == ("delete_function_concurrency", "7 executions are reserved, desired none")


def test_new_tags_are_put_on_the_role_and_the_function():
    calls = changes(desired_state(), desired_state(tags={"project": "x"}))
    assert operations(calls) == ["tag_role", "tag_resource"]
    assert calls[1].arguments == {"Resource": FUNCTION_ARN, "Tags": {"project": "x"}}


def test_a_role_with_another_trust_policy_is_corrected():
    found = deployed(desired_state(), deploy_calls(desired_state(), Found()))
    found = replace(found, role={**found.role, "AssumeRolePolicyDocument": {"Statement": []}})
    assert operations(deploy_calls(desired_state(), found)) == ["update_assume_role_policy"]


def test_a_role_that_is_given_is_used_and_left_alone():
    calls = deploy_calls(desired_state(role="arn:aws:iam::1:role/mine"), Found())
    assert not [call for call in calls if call.service == "iam"]
    assert calls[0].arguments["Role"] == "arn:aws:iam::1:role/mine"
    assert operations(find_calls(desired_state(role="arn:aws:iam::1:role/mine"))) == ["get_function"]


@pytest.mark.parametrize("tags", [{}, {"managed-by": "terraform"}])
def test_a_function_that_dorylus_did_not_make_is_not_touched(tags):
    found = replace(deployed(desired_state(), deploy_calls(desired_state(), Found())), tags=tags)
    with pytest.raises(ConfigError, match="a function called f that Dorylus did not make"):
        deploy_calls(desired_state(), found)
    assert "delete_function" not in operations(destroy_calls(desired_state(), found))


def test_a_role_that_dorylus_did_not_make_is_not_touched():
    found = Found(role={"Arn": "x", "Tags": []})
    with pytest.raises(ConfigError, match=f"a role called f-{REGION} that Dorylus did not make"):
        deploy_calls(desired_state(), found)
    assert destroy_calls(desired_state(), found) == []


def test_destroying_deletes_the_function_first_and_skips_what_does_not_exist():
    found = deployed(desired_state(), deploy_calls(desired_state(), Found()))
    assert operations(destroy_calls(desired_state(), found)) == ["delete_function", "delete_role_policy", "delete_role"]
    assert operations(destroy_calls(desired_state(), replace(found, policy=None, function=None))) == ["delete_role"]
    assert destroy_calls(desired_state(), Found()) == []


def test_no_secret_is_in_the_functions_environment():
    (_, _, create, *_) = deploy_calls(desired_state(), Found())
    assert set(create.arguments["Environment"]["Variables"]) == {
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "ORT_DISABLE_TELEMETRY",
    }


def test_an_unbuilt_zip_is_not_reported_as_changed():
    found = deployed(desired_state(), deploy_calls(desired_state(), Found()))
    assert deploy_calls(replace(desired_state(), package=Unbuilt("later")), found) == []
