"""Carries plans out through boto3: on AWS, or on a stand-in that answers the same calls."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from dorylus.errors import DorylusError
from dorylus.functions.deploy.access import AwsAccess, code_of, cure, error_text
from dorylus.functions.deploy.config import DeployError
from dorylus.functions.deploy.package import Package
from dorylus.functions.deploy.plan import ApiCall, DesiredState, Found, RoleArn, deploy_calls, destroy_calls, find_calls

Announce = Callable[[ApiCall], None]

_NOT_THERE: Final = frozenset({"NoSuchEntity", "ResourceNotFoundException"})
_ROLE_IS_NEW: Final = "cannot be assumed"  # what Lambda says of a role it does not know of yet
_ROLE_S: Final = 60.0  # how long a new role may take to be known everywhere
_EVERY_S: Final = 2.0
_WAITING: Final = {"Delay": 0.5, "MaxAttempts": 360}
_SETTINGS: Final = {
    "connect_timeout": 10,
    "read_timeout": 120,
    "retries": {"total_max_attempts": 4, "mode": "standard"},
}


class Deployment:
    """Brings the services to the desired state. ``announce`` is called with each call before it is made."""

    def __init__(
        self,
        desired: DesiredState,
        access: AwsAccess,
        announce: Announce = lambda call: None,
        *,
        client: Callable[[str], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.desired, self._announce, self._clock, self._sleep = desired, announce, clock, sleep
        self._make_client = client or partial(_client_of, access)
        self._clients: dict[str, Any] = {}
        self._role_arn: str | None = None

    def find(self) -> Found:
        """What is there now."""
        answers = {call.operation: self._look(call) for call in find_calls(self.desired)}
        role, policy = answers.get("get_role"), answers.get("get_role_policy")
        function = answers["get_function"]
        if role is not None:
            self._role_arn = role["Role"]["Arn"]
        if function is not None and "TagsError" in function:  # without tags, it is unknown whether it is ours
            raise DeployError("the function's tags may not be read: ask for the permission lambda:ListTags.")
        return Found(
            None if role is None else role["Role"],
            None if policy is None else policy["PolicyDocument"],
            None if function is None else function["Configuration"],
            {} if function is None else function.get("Tags", {}),
            None if function is None else function.get("Concurrency", {}).get("ReservedConcurrentExecutions"),
        )

    def deploy(self) -> list[ApiCall]:
        """Make everything as desired; returns the calls that were made, none if it was."""
        return self._carry_out(deploy_calls(self.desired, self.find()))

    def destroy(self) -> list[ApiCall]:
        """Remove what is ours; returns the calls that were made."""
        return self._carry_out(destroy_calls(self.desired, self.find()))

    def _carry_out(self, calls: Sequence[ApiCall]) -> list[ApiCall]:
        for call in calls:
            self._announce(call)
            answer = self._call_with_new_role(call) if call.operation == "create_function" else self._call(call)
            if call.operation == "create_role":
                self._role_arn = answer["Role"]["Arn"]
        return list(calls)

    def _look(self, call: ApiCall) -> Any:
        with _explained(call):
            try:
                return getattr(self._client(call.service), call.operation)(**call.arguments)
            except Exception as error:
                if code_of(error) in _NOT_THERE:
                    return None
                raise

    def _call(self, call: ApiCall) -> Any:
        client, arguments = self._client(call.service), self._filled(call.arguments)
        with _explained(call):
            if call.waits:
                return client.get_waiter(call.operation).wait(**arguments, WaiterConfig=_WAITING)
            return getattr(client, call.operation)(**arguments)

    def _call_with_new_role(self, call: ApiCall) -> Any:
        """A role that was just made takes some seconds to be known to Lambda."""
        deadline_s = self._clock() + _ROLE_S
        while True:
            try:
                return self._call(call)
            except DeployError as error:
                if _ROLE_IS_NEW not in str(error) or self._clock() > deadline_s:
                    raise
            self._sleep(_EVERY_S)

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._make_client(service)
        return self._clients[service]

    def _filled(self, value: Any) -> Any:
        """A call's arguments with the zip's bytes and the role's ARN in place of what stands for them."""
        if isinstance(value, Package):
            return value.read()
        if isinstance(value, RoleArn):
            return self._role_arn
        if isinstance(value, Mapping):
            return {key: self._filled(each) for key, each in value.items()}
        return [self._filled(each) for each in value] if isinstance(value, list) else value


def _client_of(access: AwsAccess, service: str) -> Any:
    """A client of AWS, which may be slow to answer, or of a stand-in, which answers or is not there."""
    if access.is_local and not access.is_listened_to():
        port = urlsplit(access.endpoint_url or "").port
        raise DeployError(
            f"nothing answers at {access.endpoint_url}: start the stand-in there (BIND_HOST=127.0.0.1 "
            f'GATEWAY_PORT={port} ministack, of pip install "dorylus[local-functions]"), or say with --endpoint-url '
            "where it listens."
        )
    return access.client(service, **_SETTINGS)


@contextmanager
def _explained(call: ApiCall) -> Iterator[None]:
    """Turns errors of boto3 into ones of ours that show no credential: not even their cause is kept."""
    try:
        yield
    except DorylusError:
        raise
    except Exception as error:
        text = f"{call.service} {call.operation} was refused or failed: {error_text(error)} {cure(error)}".rstrip()
        raise DeployError(text) from None
