"""A deployment as data: the calls that turn what is found into what is wanted, in order. Pure, so it can be shown.

Deploying twice gives no calls the second time. Whatever we make carries our tag; what is there without it is somebody
else's, and neither changed nor destroyed.

Plans in words: one call a paragraph, with every argument; a zip as its size and hash.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dorylus.errors import ConfigError
from dorylus.functions.deploy.desired_state import OUR_TAG, DesiredState, Found, RoleArn, policy, trust
from dorylus.functions.deploy.package import HANDLER

POLICY: Final = "dorylus"
ENVIRONMENT: Final = {  # a task runs on one thread; ONNX Runtime reports nothing to its maker
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}


@dataclass(frozen=True)
class ApiCall:
    """One call of a service, with what it is for. ``waits``: it asks again until the service is done with the last."""

    service: str
    operation: str
    arguments: Mapping[str, Any]
    why: str
    waits: bool = False


def looks(wanted: DesiredState) -> list[ApiCall]:
    """The calls that find out what is there; they change nothing."""
    of_role = [
        ApiCall("iam", "get_role", {"RoleName": wanted.role}, "is the role there?"),
        ApiCall("iam", "get_role_policy", {"RoleName": wanted.role, "PolicyName": POLICY}, "what may it do?"),
    ]
    of_function = [ApiCall("lambda", "get_function", {"FunctionName": wanted.config.name}, "is the function there?")]
    return of_function if wanted.config.role else of_role + of_function


def deploy_calls(wanted: DesiredState, found: Found) -> list[ApiCall]:
    """The calls that make what is found into what is wanted; none if it is."""
    _check_is_ours("function", wanted.config.name, found.function, found.tags)
    _check_is_ours("role", wanted.role, found.role, found.role_tags)
    return [*_role_calls(wanted, found), *_function_calls(wanted, found), *_concurrency_calls(wanted, found)]


def destroy_calls(wanted: DesiredState, found: Found) -> list[ApiCall]:
    """The calls that take away what we made, function first."""
    calls, name = [], wanted.config.name
    if found.function is not None and _is_ours(found.tags):
        calls.append(ApiCall("lambda", "delete_function", {"FunctionName": name}, "the function is ours"))
    if found.role is not None and _is_ours(found.role_tags):
        role = {"RoleName": wanted.role}
        if found.policy is not None:
            policy = {**role, "PolicyName": POLICY}
            calls.append(ApiCall("iam", "delete_role_policy", policy, "a role with policies cannot be deleted"))
        calls.append(ApiCall("iam", "delete_role", role, "the role is ours"))
    return calls


def everything_of(wanted: DesiredState) -> Found:
    """What would be there if all of it had been deployed: for showing what destroying takes."""
    ours = [{"Key": key, "Value": value} for key, value in OUR_TAG.items()]
    has_role = wanted.config.role is None
    return Found({"Tags": ours} if has_role else None, {} if has_role else None, {}, OUR_TAG)


def _role_calls(wanted: DesiredState, found: Found) -> list[ApiCall]:
    if wanted.config.role is not None:
        return []
    calls, name = [], {"RoleName": wanted.role}
    if found.role is None:
        tags = [{"Key": key, "Value": value} for key, value in wanted.tags.items()]
        about = {"Description": "What a Dorylus function may do.", "Tags": tags}
        made = {**name, "AssumeRolePolicyDocument": json.dumps(trust()), **about}
        calls.append(ApiCall("iam", "create_role", made, "no such role"))
    else:
        calls += _role_changes(wanted, found)
    if found.policy != policy(wanted):
        arguments = {**name, "PolicyName": POLICY, "PolicyDocument": json.dumps(policy(wanted))}
        why = "the role may do nothing yet" if found.policy is None else "the role may do something else"
        calls.append(ApiCall("iam", "put_role_policy", arguments, why))
    return calls


def _role_changes(wanted: DesiredState, found: Found) -> list[ApiCall]:
    calls, name = [], {"RoleName": wanted.role}
    if (found.role or {}).get("AssumeRolePolicyDocument") != trust():
        arguments = {**name, "PolicyDocument": json.dumps(trust())}
        calls.append(ApiCall("iam", "update_assume_role_policy", arguments, "others may take the role"))
    if missing := _missing(wanted.tags, found.role_tags):
        tags = [{"Key": key, "Value": value} for key, value in missing.items()]
        calls.append(ApiCall("iam", "tag_role", {**name, "Tags": tags}, f"tags {_list(missing)} are missing"))
    return calls


def _function_calls(wanted: DesiredState, found: Found) -> list[ApiCall]:
    name = {"FunctionName": wanted.config.name}
    if found.function is None:
        settings = {
            key: value for key, value in _settings(wanted).items() if key != "VpcConfig" or wanted.config.subnets
        }
        made = {**name, **settings, **_code(wanted, {"Code": {"ZipFile": wanted.package}}), "Tags": wanted.tags}
        ready = ApiCall("lambda", "function_active_v2", name, "until it can be invoked", waits=True)
        return [ApiCall("lambda", "create_function", made, "no such function"), ready]
    calls, ready = [], ApiCall("lambda", "function_updated_v2", name, "until the update is done", waits=True)
    if reasons := _code_differences(wanted, found.function):
        arguments = {**name, **_code(wanted, {"ZipFile": wanted.package})}
        calls += [ApiCall("lambda", "update_function_code", arguments, "; ".join(reasons)), ready]
    if differing := _differing(wanted, found.function):
        why = "; ".join(f"{key} is {_shown(is_)}, wanted {_shown(want)}" for key, (is_, want) in differing.items())
        settings = {key: want for key, (_, want) in differing.items()}
        calls += [ApiCall("lambda", "update_function_configuration", {**name, **settings}, why), ready]
    if missing := _missing(wanted.tags, found.tags):
        arguments = {"Resource": found.function["FunctionArn"], "Tags": missing}
        calls.append(ApiCall("lambda", "tag_resource", arguments, f"tags {_list(missing)} are missing"))
    return calls


def _concurrency_calls(wanted: DesiredState, found: Found) -> list[ApiCall]:
    asked, name = wanted.config.concurrency, {"FunctionName": wanted.config.name}
    if asked == found.concurrency:
        return []
    why = f"{found.concurrency or 'no'} executions are reserved, wanted {asked or 'none'}"
    if asked is None:
        return [ApiCall("lambda", "delete_function_concurrency", name, why)]
    arguments = {**name, "ReservedConcurrentExecutions": asked}
    return [ApiCall("lambda", "put_function_concurrency", arguments, why)]


def _code(wanted: DesiredState, zipped: dict[str, Any]) -> dict[str, Any]:
    return {**zipped, "Architectures": [wanted.config.platform.architecture]}


def _settings(wanted: DesiredState) -> dict[str, Any]:
    """The settings of a function, as the service names them."""
    config = wanted.config
    return {
        "Runtime": config.platform.runtime,
        "Handler": HANDLER,
        "Role": config.role or RoleArn(wanted.role),
        "Timeout": config.timeout_s,
        "MemorySize": config.memory_mb,
        "Environment": {"Variables": dict(ENVIRONMENT)},
        "VpcConfig": {"SubnetIds": sorted(config.subnets), "SecurityGroupIds": sorted(config.security_groups)},
    }


def _code_differences(wanted: DesiredState, function: Mapping[str, Any]) -> list[str]:
    differences = []
    if wanted.package.code_sha256 not in (None, function["CodeSha256"]):
        differences.append("the code is another")
    if (found := function.get("Architectures", ["x86_64"])) != [wanted.config.platform.architecture]:
        differences.append(f"the architecture is {found[0]}, wanted {wanted.config.platform.architecture}")
    return differences


def _differing(wanted: DesiredState, function: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that are not as wanted: (found, wanted) by name."""
    found = dict(function)
    network = function.get("VpcConfig") or {}
    found["VpcConfig"] = {key: sorted(network.get(key, [])) for key in ("SubnetIds", "SecurityGroupIds")}
    found["Environment"] = {"Variables": (function.get("Environment") or {}).get("Variables", {})}
    if wanted.config.role is None and str(found["Role"]).endswith(f":role/{wanted.role}"):
        found["Role"] = RoleArn(wanted.role)
    return {key: (found.get(key), want) for key, want in _settings(wanted).items() if found.get(key) != want}


def _check_is_ours(what: str, name: str, found: Mapping[str, Any] | None, tags: Mapping[str, str]) -> None:
    if found is not None and not _is_ours(tags):
        raise ConfigError(
            f"there is a {what} called {name} that Dorylus did not make (it lacks the tag managed-by=dorylus): choose "
            "another name for the function, or delete that one yourself."
        )


def _is_ours(tags: Mapping[str, str]) -> bool:
    return all(tags.get(key) == value for key, value in OUR_TAG.items())


def _missing(wanted: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if found.get(key) != value}


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, RoleArn | str | int) else json.dumps(value)


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names))


def format_plan(calls: Iterable[ApiCall]) -> str:
    """Numbered calls, with arguments."""
    return "\n".join(f"{number}. {_call(each)}" for number, each in enumerate(calls, 1))


def title(call: ApiCall) -> str:
    """A call in a line: what, and what for."""
    return f"{call.service} {'wait for ' if call.waits else ''}{call.operation}: {call.why}"


def state(wanted: DesiredState, found: Found) -> str:
    """What is there, in a few lines."""
    if wanted.config.role is not None:
        role = f"{wanted.config.role} (not ours)"
    else:
        role = wanted.role if found.role is not None else f"{wanted.role} is not there"
    if found.function is None:
        return f"function  {wanted.config.name} is not there\nrole      {role}"
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


def _call(call: ApiCall) -> str:
    lines = [f"     {key} = {_value(value)}" for key, value in call.arguments.items()]
    return "\n".join([title(call), *lines])


def _value(value: Any) -> str:
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)  # a policy travels as text
    return json.dumps(value, default=str, ensure_ascii=False)
