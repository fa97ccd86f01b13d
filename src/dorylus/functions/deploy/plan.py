"""A deployment as data: the state that is desired, the state that is found, and the calls from one to the other.

Pure, so that a plan can be printed before it is carried out. A second deployment makes no calls. Everything that a
deployment makes has Dorylus's tag; a function or role without the tag is neither changed nor destroyed.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dorylus.errors import ConfigError
from dorylus.functions.deploy.config import FunctionConfig
from dorylus.functions.deploy.package import HANDLER, Package

OUR_TAG: Final = {"managed-by": "dorylus"}
_NETWORK_RIGHTS = ("CreateNetworkInterface", "DescribeNetworkInterfaces", "DescribeSubnets", "DeleteNetworkInterface")
_ADDRESS_RIGHTS = ("AssignPrivateIpAddresses", "UnassignPrivateIpAddresses")
POLICY: Final = "dorylus"
ENVIRONMENT: Final = {  # one thread for each task; no telemetry of ONNX Runtime
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}


@dataclass(frozen=True)
class RoleArn:
    """A placeholder for the ARN of a role that an earlier call makes."""

    role: str

    def __str__(self) -> str:
        return f"<ARN of role {self.role}>"


@dataclass(frozen=True)
class Unbuilt:
    """A placeholder for a zip that is not built yet, with the reason."""

    why: str
    code_sha256: None = None

    def __str__(self) -> str:
        return f"<zip, not built yet: {self.why}>"


@dataclass(frozen=True)
class DesiredState:
    """The desired state: a function as configured, with this zip, in this region."""

    config: FunctionConfig
    package: Package | Unbuilt
    region: str

    @property
    def role(self) -> str:
        """The name of the role that is made for it. Roles belong to no region, so the name contains it."""
        return f"{self.config.name}-{self.region}"

    @property
    def tags(self) -> dict[str, str]:
        """The tags on everything that is made."""
        return {**self.config.tags, **OUR_TAG}

    def deployed(self) -> "Found":
        """The state that would be found after a deployment; used to print what destroying removes."""
        ours = [{"Key": key, "Value": value} for key, value in OUR_TAG.items()]
        has_role = self.config.role is None
        return Found({"Tags": ours} if has_role else None, {} if has_role else None, {}, OUR_TAG)

    def describe(self, found: "Found") -> str:
        """What is there, in a few lines."""
        if self.config.role is not None:
            role = f"{self.config.role} (not ours)"
        else:
            role = self.role if found.role is not None else f"{self.role} is not there"
        if found.function is None:
            return f"function  {self.config.name} is not there\nrole      {role}"
        function = found.function
        about = f"{function.get('State', '?')}, {function['Runtime']} on {function['Architectures'][0]}"
        sizes = f"{function['MemorySize']} MB, {function['Timeout']} s, zip of {function['CodeSize'] / 1e6:.1f} MB"
        network = (function.get("VpcConfig") or {}).get("SubnetIds") or []
        return "\n".join([
            f"function  {function['FunctionName']}: {about}",
            f"          {sizes}, last changed {function['LastModified']}",
            f"network   {', '.join(network) or 'none of yours'}",
            f"at once   {found.concurrency or 'as many as the account allows'}",
            f"role      {role}",
        ])  # fmt: skip


@dataclass(frozen=True)
class Found:
    """The state that the services report; None or empty for what does not exist."""

    role: Mapping[str, Any] | None = None
    policy: Mapping[str, Any] | None = None
    function: Mapping[str, Any] | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    concurrency: int | None = None

    @property
    def role_tags(self) -> dict[str, str]:
        """The tags of the role."""
        return {tag["Key"]: tag["Value"] for tag in (self.role or {}).get("Tags", [])}


def trust() -> dict[str, Any]:
    """The trust policy of the role: Lambda may assume it."""
    return _document({"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"})


def policy(desired: DesiredState) -> dict[str, Any]:
    """What the function may do: write its log and, inside a network, have an address there. Nothing else of AWS."""
    arn = f"arn:{_partition(desired.region)}:logs:{desired.region}:*:log-group:/aws/lambda/{desired.config.name}"
    logs = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"]
    statements = [{"Effect": "Allow", "Action": logs, "Resource": [arn, f"{arn}:*"]}]
    if desired.config.subnets:
        rights = [f"ec2:{right}" for right in (*_NETWORK_RIGHTS, *_ADDRESS_RIGHTS)]
        statements.append({"Effect": "Allow", "Action": rights, "Resource": ["*"]})
    return _document(*statements)


def _partition(region: str) -> str:
    return next((f"aws-{name}" for name in ("cn", "us-gov") if region.startswith(f"{name}-")), "aws")


def _document(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


@dataclass(frozen=True)
class ApiCall:
    """A call of a service, and its purpose. ``waits``: repeated until the service has finished the call before."""

    service: str
    operation: str
    arguments: Mapping[str, Any]
    why: str
    waits: bool = False

    def __str__(self) -> str:
        return f"{self.service} {'wait for ' if self.waits else ''}{self.operation}: {self.why}"


def find_calls(desired: DesiredState) -> list[ApiCall]:
    """The calls that read the present state; they change nothing."""
    of_role = [
        ApiCall("iam", "get_role", {"RoleName": desired.role}, "is the role there?"),
        ApiCall("iam", "get_role_policy", {"RoleName": desired.role, "PolicyName": POLICY}, "what may it do?"),
    ]
    of_function = [ApiCall("lambda", "get_function", {"FunctionName": desired.config.name}, "is the function there?")]
    return of_function if desired.config.role else of_role + of_function


def deploy_calls(desired: DesiredState, found: Found) -> list[ApiCall]:
    """The calls that lead from the found state to the desired one; none if they are the same."""
    _check_is_ours("function", desired.config.name, found.function, found.tags)
    _check_is_ours("role", desired.role, found.role, found.role_tags)
    return [*_role_calls(desired, found), *_function_calls(desired, found), *_concurrency_calls(desired, found)]


def destroy_calls(desired: DesiredState, found: Found) -> list[ApiCall]:
    """The calls that remove what Dorylus made, the function first."""
    calls, name = [], desired.config.name
    if found.function is not None and _is_ours(found.tags):
        calls.append(ApiCall("lambda", "delete_function", {"FunctionName": name}, "the function is ours"))
    if found.role is not None and _is_ours(found.role_tags):
        role = {"RoleName": desired.role}
        if found.policy is not None:
            policy = {**role, "PolicyName": POLICY}
            calls.append(ApiCall("iam", "delete_role_policy", policy, "a role with policies cannot be deleted"))
        calls.append(ApiCall("iam", "delete_role", role, "the role is ours"))
    return calls


def _role_calls(desired: DesiredState, found: Found) -> list[ApiCall]:
    if desired.config.role is not None:
        return []
    calls, name = [], {"RoleName": desired.role}
    if found.role is None:
        tags = [{"Key": key, "Value": value} for key, value in desired.tags.items()]
        about = {"Description": "What a Dorylus function may do.", "Tags": tags}
        made = {**name, "AssumeRolePolicyDocument": json.dumps(trust()), **about}
        calls.append(ApiCall("iam", "create_role", made, "no such role"))
    else:
        calls += _role_changes(desired, found)
    if found.policy != policy(desired):
        arguments = {**name, "PolicyName": POLICY, "PolicyDocument": json.dumps(policy(desired))}
        why = "the role may do nothing yet" if found.policy is None else "the role may do something else"
        calls.append(ApiCall("iam", "put_role_policy", arguments, why))
    return calls


def _role_changes(desired: DesiredState, found: Found) -> list[ApiCall]:
    calls, name = [], {"RoleName": desired.role}
    if (found.role or {}).get("AssumeRolePolicyDocument") != trust():
        arguments = {**name, "PolicyDocument": json.dumps(trust())}
        calls.append(ApiCall("iam", "update_assume_role_policy", arguments, "others may assume the role"))
    if missing := _missing(desired.tags, found.role_tags):
        tags = [{"Key": key, "Value": value} for key, value in missing.items()]
        calls.append(ApiCall("iam", "tag_role", {**name, "Tags": tags}, f"tags {_list(missing)} are missing"))
    return calls


def _function_calls(desired: DesiredState, found: Found) -> list[ApiCall]:
    name = {"FunctionName": desired.config.name}
    if found.function is None:
        settings = {
            key: value for key, value in _settings(desired).items() if key != "VpcConfig" or desired.config.subnets
        }
        made = {**name, **settings, **_code(desired, {"Code": {"ZipFile": desired.package}}), "Tags": desired.tags}
        ready = ApiCall("lambda", "function_active_v2", name, "until it can be invoked", waits=True)
        return [ApiCall("lambda", "create_function", made, "no such function"), ready]
    calls, ready = [], ApiCall("lambda", "function_updated_v2", name, "until the update is done", waits=True)
    if reasons := _code_differences(desired, found.function):
        arguments = {**name, **_code(desired, {"ZipFile": desired.package})}
        calls += [ApiCall("lambda", "update_function_code", arguments, "; ".join(reasons)), ready]
    if differing := _differing(desired, found.function):
        why = "; ".join(f"{key} is {_format(is_)}, desired {_format(want)}" for key, (is_, want) in differing.items())
        settings = {key: want for key, (_, want) in differing.items()}
        calls += [ApiCall("lambda", "update_function_configuration", {**name, **settings}, why), ready]
    if missing := _missing(desired.tags, found.tags):
        arguments = {"Resource": found.function["FunctionArn"], "Tags": missing}
        calls.append(ApiCall("lambda", "tag_resource", arguments, f"tags {_list(missing)} are missing"))
    return calls


def _concurrency_calls(desired: DesiredState, found: Found) -> list[ApiCall]:
    concurrency, name = desired.config.concurrency, {"FunctionName": desired.config.name}
    if concurrency == found.concurrency:
        return []
    why = f"{found.concurrency or 'no'} executions are reserved, desired {concurrency or 'none'}"
    if concurrency is None:
        return [ApiCall("lambda", "delete_function_concurrency", name, why)]
    arguments = {**name, "ReservedConcurrentExecutions": concurrency}
    return [ApiCall("lambda", "put_function_concurrency", arguments, why)]


def _code(desired: DesiredState, zipped: dict[str, Any]) -> dict[str, Any]:
    return {**zipped, "Architectures": [desired.config.platform.architecture]}


def _settings(desired: DesiredState) -> dict[str, Any]:
    """The settings of a function, as the service names them."""
    config = desired.config
    return {
        "Runtime": config.platform.runtime,
        "Handler": HANDLER,
        "Role": config.role or RoleArn(desired.role),
        "Timeout": config.timeout_s,
        "MemorySize": config.memory_mb,
        "Environment": {"Variables": dict(ENVIRONMENT)},
        "VpcConfig": {"SubnetIds": sorted(config.subnets), "SecurityGroupIds": sorted(config.security_groups)},
    }


def _code_differences(desired: DesiredState, function: Mapping[str, Any]) -> list[str]:
    differences = []
    if desired.package.code_sha256 not in (None, function["CodeSha256"]):
        differences.append("the code is another")
    if (found := function.get("Architectures", ["x86_64"])) != [desired.config.platform.architecture]:
        differences.append(f"the architecture is {found[0]}, desired {desired.config.platform.architecture}")
    return differences


def _differing(desired: DesiredState, function: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that are not as desired: (found, desired) by name."""
    found = dict(function)
    network = function.get("VpcConfig") or {}
    found["VpcConfig"] = {key: sorted(network.get(key, [])) for key in ("SubnetIds", "SecurityGroupIds")}
    found["Environment"] = {"Variables": (function.get("Environment") or {}).get("Variables", {})}
    if desired.config.role is None and str(found["Role"]).endswith(f":role/{desired.role}"):
        found["Role"] = RoleArn(desired.role)
    return {key: (found.get(key), want) for key, want in _settings(desired).items() if found.get(key) != want}


def _check_is_ours(what: str, name: str, found: Mapping[str, Any] | None, tags: Mapping[str, str]) -> None:
    if found is not None and not _is_ours(tags):
        raise ConfigError(
            f"there is a {what} called {name} that Dorylus did not make (it lacks the tag managed-by=dorylus): choose "
            "another name for the function, or delete that one yourself."
        )


def _is_ours(tags: Mapping[str, str]) -> bool:
    return all(tags.get(key) == value for key, value in OUR_TAG.items())


def _missing(desired: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in desired.items() if found.get(key) != value}


def _format(value: Any) -> str:
    return str(value) if isinstance(value, RoleArn | str | int) else json.dumps(value)


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names))


def format_plan(calls: Iterable[ApiCall]) -> str:
    """Numbered calls, with arguments."""
    return "\n".join(f"{number}. {_call(each)}" for number, each in enumerate(calls, 1))


def _call(call: ApiCall) -> str:
    lines = [f"     {key} = {_value(value)}" for key, value in call.arguments.items()]
    return "\n".join([str(call), *lines])


def _value(value: Any) -> str:
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)  # a policy travels as text
    return json.dumps(value, default=str, ensure_ascii=False)
