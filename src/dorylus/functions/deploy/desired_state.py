"""What is to be there and what is: a function, the role it has, and what that role may do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dorylus.functions.deploy.config import FunctionConfig
from dorylus.functions.deploy.package import Package

OUR_TAG: Final = {"managed-by": "dorylus"}
_NETWORK_RIGHTS = ("CreateNetworkInterface", "DescribeNetworkInterfaces", "DescribeSubnets", "DeleteNetworkInterface")
_ADDRESS_RIGHTS = ("AssignPrivateIpAddresses", "UnassignPrivateIpAddresses")


@dataclass(frozen=True)
class RoleArn:
    """Stands in a call for the ARN of a role that an earlier call makes."""

    role: str

    def __str__(self) -> str:
        return f"<ARN of role {self.role}>"


@dataclass(frozen=True)
class Unbuilt:
    """Stands for a zip that is not built yet, and says why."""

    why: str
    code_sha256: None = None

    def __str__(self) -> str:
        return f"<zip, not built yet: {self.why}>"


@dataclass(frozen=True)
class DesiredState:
    """What is to be there: a function as configured, with this zip, in this region."""

    config: FunctionConfig
    package: Package | Unbuilt
    region: str

    @property
    def role(self) -> str:
        """The name of the role that is made for it. Roles know no regions, so the name says it."""
        return f"{self.config.name}-{self.region}"

    @property
    def tags(self) -> dict[str, str]:
        """The tags on everything that is made."""
        return {**self.config.tags, **OUR_TAG}


@dataclass(frozen=True)
class Found:
    """What is there, as the services tell it; None or empty for what is not."""

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
    """Who may take the role: Lambda."""
    return _document({"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"})


def policy(wanted: DesiredState) -> dict[str, Any]:
    """What the function may do: write its log and, inside a network, have an address there. Nothing else of AWS."""
    arn = f"arn:{_partition(wanted.region)}:logs:{wanted.region}:*:log-group:/aws/lambda/{wanted.config.name}"
    logs = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"]
    statements = [{"Effect": "Allow", "Action": logs, "Resource": [arn, f"{arn}:*"]}]
    if wanted.config.subnets:
        rights = [f"ec2:{right}" for right in (*_NETWORK_RIGHTS, *_ADDRESS_RIGHTS)]
        statements.append({"Effect": "Allow", "Action": rights, "Resource": ["*"]})
    return _document(*statements)


def _partition(region: str) -> str:
    return next((f"aws-{name}" for name in ("cn", "us-gov") if region.startswith(f"{name}-")), "aws")


def _document(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}
