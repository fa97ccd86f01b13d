"""Plans in words: one call a paragraph, with every argument; a zip as its size and hash."""

import json
from collections.abc import Iterable
from typing import Any

from dorylus.functions.deploy.plan import ApiCall
from dorylus.functions.deploy.wanted import Found, Wanted


def shown(calls: Iterable[ApiCall]) -> str:
    """Numbered calls, with arguments."""
    return "\n".join(f"{number}. {_call(each)}" for number, each in enumerate(calls, 1))


def title(call: ApiCall) -> str:
    """A call in a line: what, and what for."""
    return f"{call.service} {'wait for ' if call.waits else ''}{call.operation}: {call.why}"


def state(wanted: Wanted, found: Found) -> str:
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
