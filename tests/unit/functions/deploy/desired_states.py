"""Desired states of functions, with a zip that need not be built."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dorylus.functions.deploy.config import FunctionConfig, on_aws
from dorylus.functions.deploy.package import Package
from dorylus.functions.deploy.plan import (
    ApiCall,
    DesiredState,
    Found,
    RoleArn,
    deploy_calls,
    destroy_calls,
    find_calls,
    policy,
    trust,
)

ACCOUNT = "123456789012"
REGION = "eu-central-1"
ROLE_ARN = f"arn:aws:iam::{ACCOUNT}:role/f-{REGION}"
FUNCTION_ARN = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:f"
NETWORK = {"subnets": ("subnet-b", "subnet-a"), "security_groups": ("sg-1",)}
SETTINGS = [
    {},
    {"concurrency": 7, "tags": {"project": "x"}},
    NETWORK,
    {"role": "arn:aws:iam::123456789012:role/mine"},
    {"platform": on_aws("arm64", "3.13"), "memory_mb": 10240, "timeout_s": 900},
]


def desired_state(folder: Path = Path("/nowhere"), content: bytes = b"zip", **settings: Any) -> DesiredState:
    """The desired state of a function called f."""
    import hashlib

    package = Package(folder / "f.zip", hashlib.sha256(content).hexdigest(), len(content), 3 * len(content))
    return DesiredState(
        FunctionConfig(**{"name": "f", "platform": on_aws("x86_64", "3.12")} | settings), package, REGION
    )


def deployed(desired: DesiredState, calls: list[ApiCall]) -> Found:
    """What the services return once these calls have made a function."""
    made = {call.operation: call.arguments for call in calls}
    given = made["create_function"]
    function = {key: value for key, value in given.items() if key not in ("Code", "Tags")}
    function |= {"CodeSha256": desired.package.code_sha256, "FunctionArn": FUNCTION_ARN, "State": "Active"}
    if isinstance(function["Role"], RoleArn):
        function["Role"] = ROLE_ARN
    tags = made.get("create_role", {}).get("Tags")
    role = None if tags is None else {"Arn": ROLE_ARN, "Tags": tags, "AssumeRolePolicyDocument": trust()}
    concurrency = made.get("put_function_concurrency", {}).get("ReservedConcurrentExecutions")
    return Found(role, None if role is None else policy(desired), function, given["Tags"], concurrency)


def changes(before: DesiredState, after: DesiredState) -> list[ApiCall]:
    """The calls that turn one deployed state into another."""
    return deploy_calls(after, deployed(before, deploy_calls(before, Found())))


def every_call() -> Iterator[ApiCall]:
    """The calls of the plans between all pairs of states: every kind of call except that for a changed trust policy."""
    for settings in SETTINGS:
        desired = desired_state(**settings)
        for other in SETTINGS:
            yield from [
                *find_calls(desired),
                *deploy_calls(desired, Found()),
                *changes(desired_state(content=b"1", **other), desired),
            ]
        yield from destroy_calls(desired, desired.deployed())
