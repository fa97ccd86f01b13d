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
_ROLE_IS_NEW: Final = "cannot be assumed"  # the error of Lambda while a new role is not visible to it
_ROLE_S: Final = 60.0  # how long a new role may take to become visible
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
        """The state of the services now."""
        answers = {call.operation: self._look(call) for call in find_calls(self.desired)}
        role, policy = answers.get("get_role"), answers.get("get_role_policy")
        function = answers["get_function"]
        if role is not None:
            self._role_arn = role["Role"]["Arn"]
        if function is not None and "TagsError" in function:  # tags show whether Dorylus made the function
            raise DeployError("reading the function's tags is not permitted: ask for the permission lambda:ListTags.")
        return Found(
            None if role is None else role["Role"],
            None if policy is None else policy["PolicyDocument"],
            None if function is None else function["Configuration"],
            {} if function is None else function.get("Tags", {}),
            None if function is None else function.get("Concurrency", {}).get("ReservedConcurrentExecutions"),
        )

    def deploy(self) -> list[ApiCall]:
        """Bring the services to the desired state; returns the calls that were made, none if they were in it."""
        return self._carry_out(deploy_calls(self.desired, self.find()))

    def destroy(self) -> list[ApiCall]:
        """Remove what Dorylus made; returns the calls that were made."""
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
        """Make a call, repeated while Lambda does not see the role that was just made."""
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
        """A call's arguments with their placeholders replaced by the zip's bytes and the role's ARN."""
        if isinstance(value, Package):
            return value.read()
        if isinstance(value, RoleArn):
            return self._role_arn
        if isinstance(value, Mapping):
            return {key: self._filled(each) for key, each in value.items()}
        return [self._filled(each) for each in value] if isinstance(value, list) else value


def _client_of(access: AwsAccess, service: str) -> Any:
    """A client of AWS, or of a stand-in, which is refused if nothing listens."""
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
    """Replaces boto3's errors by DeployErrors that show no credential, and so keep no cause."""
    try:
        yield
    except DorylusError:
        raise
    except Exception as error:
        text = f"{call.service} {call.operation} was refused or failed: {error_text(error)} {cure(error)}".rstrip()
        raise DeployError(text) from None
