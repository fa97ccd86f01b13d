from dataclasses import replace

from desired_states import deployed, desired_state

from dorylus.functions.deploy.plan import Found, Unbuilt, deploy_calls, find_calls, format_plan


def test_every_call_is_printed_with_every_argument_and_the_zip_by_size_and_hash():
    desired = desired_state(content=b"x" * 2_000_000, concurrency=5)
    calls = [*find_calls(desired), *deploy_calls(desired, Found())]
    text = format_plan(calls)
    for number, call in enumerate(calls, 1):
        assert f"{number}. {call}" in text
        assert all(f"     {key} = " in text for key in call.arguments)
    assert f'"zip of 2.0 MB (6.0 MB unpacked), sha256 {desired.package.sha256[:16]}"' in text
    assert "<ARN of role f-eu-central-1>" in text
    assert '"Service": "lambda.amazonaws.com"' in text  # policies are JSON objects, not quoted text


def test_an_unbuilt_zip_gives_the_reason():
    desired = replace(desired_state(), package=Unbuilt("pip would fetch numpy==2"))
    assert "<zip, not built yet: pip would fetch numpy==2>" in format_plan(deploy_calls(desired, Found()))


def test_the_found_state_is_described_in_a_few_lines():
    desired = desired_state(concurrency=5)
    found = deployed(desired, deploy_calls(desired, Found()))
    function = {**found.function, "CodeSize": 27_000_000, "LastModified": "2030-01-01"}
    text = desired.describe(replace(found, function=function))
    assert "f: Active, python3.12 on x86_64" in text
    assert "1769 MB, 120 s, zip of 27.0 MB" in text
    assert "at once   5" in text
    assert desired.describe(Found()).splitlines() == [
        "function  f is not there",
        "role      f-eu-central-1 is not there",
    ]
