"""``dorylus functions deploy | status | destroy``: the function that runs dense tasks, on AWS or a stand-in."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dorylus.cli.flags import HelpfulCommand, HelpfulGroup, examples
from dorylus.errors import ConfigError, unknown_name
from dorylus.settings import SettingGroup

if TYPE_CHECKING:
    from dorylus.functions import ApiCall, AwsAccess, DesiredState

TARGETS = ("aws", "local")
HELP = "Deploy, inspect or destroy the function that runs dense tasks on AWS Lambda."
OFFLINE = (
    "Nothing was called. This is the plan as if nothing were there yet: when it is carried out, the first calls look "
    "at what is there, and those that would change nothing are left out."
)

functions = typer.Typer(cls=HelpfulGroup, no_args_is_help=True, rich_markup_mode=None, help=HELP)

Name = Annotated[
    str, typer.Option(help="The name of the function.", metavar="NAME", rich_help_panel=SettingGroup.FUNCTIONS)
]
Target = Annotated[
    str,
    typer.Option(
        help="aws, or local: a stand-in (ministack) on this machine.",
        metavar="WHERE",
        rich_help_panel=SettingGroup.PLACE,
    ),
]
Region = Annotated[
    str | None,
    typer.Option(
        help="AWS region. [the one boto3 is set up for]", metavar="REGION", rich_help_panel=SettingGroup.PLACE
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(help="Profile of ~/.aws/config to use.", metavar="NAME", rich_help_panel=SettingGroup.PLACE),
]
EndpointUrl = Annotated[
    str | None,
    typer.Option(
        help="Where the stand-in listens. [http://127.0.0.1:4566]", metavar="URL", rich_help_panel=SettingGroup.PLACE
    ),
]
Memory = Annotated[
    int, typer.Option("--memory", help="MB; 1769 are one core.", metavar="MB", rich_help_panel=SettingGroup.FUNCTIONS)
]
Timeout = Annotated[
    int,
    typer.Option(
        "--timeout", help="Longest time of an invocation.", metavar="SECONDS", rich_help_panel=SettingGroup.FUNCTIONS
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(help="Concurrency to reserve for this function.", metavar="N", rich_help_panel=SettingGroup.FUNCTIONS),
]
Architecture = Annotated[
    str | None,
    typer.Option(help="x86_64 or arm64. [this machine's]", metavar="NAME", rich_help_panel=SettingGroup.FUNCTIONS),
]
Python = Annotated[
    str | None,
    typer.Option(
        help="3.12, 3.13 or 3.14. [this Python's, or else 3.12]", metavar="X.Y", rich_help_panel=SettingGroup.FUNCTIONS
    ),
]
Subnet = Annotated[
    list[str] | None,
    typer.Option(help="Subnet to run in; may be repeated.", metavar="ID", rich_help_panel=SettingGroup.PLACE),
]
SecurityGroup = Annotated[
    list[str] | None,
    typer.Option(help="Security group; may be repeated.", metavar="ID", rich_help_panel=SettingGroup.PLACE),
]
Role = Annotated[
    str | None,
    typer.Option(help="ARN of a role to use. [one is made]", metavar="ARN", rich_help_panel=SettingGroup.PLACE),
]
Tag = Annotated[
    list[str] | None,
    typer.Option(
        help="Tag for what is made; may be repeated.", metavar="KEY=VALUE", rich_help_panel=SettingGroup.PLACE
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print every call; call nothing.", rich_help_panel=SettingGroup.OUTPUT)
]


@functions.command(
    cls=HelpfulCommand,
    epilog=examples(
        "dorylus functions deploy --dry-run", "dorylus functions deploy --region eu-central-1 --memory 3538"
    ),
)
def deploy(
    name: Name = "dorylus",
    target: Target = "aws",
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    memory: Memory = 1769,
    timeout: Timeout = 120,
    concurrency: Concurrency = None,
    architecture: Architecture = None,
    python: Python = None,
    subnet: Subnet = None,
    security_group: SecurityGroup = None,
    role: Role = None,
    tag: Tag = None,
    dry_run: DryRun = False,
) -> None:
    """Make the function and its role, or bring them up to date; a second deploy does nothing."""
    from dorylus.functions import Deployment, Found, deploy_calls, find_calls, format_plan

    access = _access(target, region, profile, endpoint_url)
    settings = _settings(memory, timeout, concurrency, subnet, security_group, role, tag)
    desired = _desired_state(access, name, architecture, python, settings, download=not dry_run)
    if dry_run:
        typer.echo(format_plan([*find_calls(desired), *deploy_calls(desired, Found())]))
        typer.echo(OFFLINE)
        return
    calls = Deployment(desired, access, _tell).deploy()
    typer.echo(f"{name}: {_done(calls)} ({desired.package})")


@functions.command(cls=HelpfulCommand, epilog=examples("dorylus functions status --region eu-central-1"))
def status(
    name: Name = "dorylus",
    target: Target = "aws",
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    memory: Memory = 1769,
    timeout: Timeout = 120,
    concurrency: Concurrency = None,
    architecture: Architecture = None,
    python: Python = None,
    subnet: Subnet = None,
    security_group: SecurityGroup = None,
    role: Role = None,
    tag: Tag = None,
) -> None:
    """Show what is there, and how it differs from what deploy with the same options would make of it."""
    from dorylus.functions import Deployment, deploy_calls

    access = _access(target, region, profile, endpoint_url)
    settings = _settings(memory, timeout, concurrency, subnet, security_group, role, tag)
    desired = _desired_state(access, name, architecture, python, settings, download=False)
    found = Deployment(desired, access).find()
    typer.echo(desired.describe(found))
    calls = [call for call in deploy_calls(desired, found) if not call.waits]
    for call in calls:
        typer.echo(f"deploy would call {call}")
    if not calls:
        typer.echo("as desired: deploy would change nothing")


@functions.command(cls=HelpfulCommand, epilog=examples("dorylus functions destroy --target local"))
def destroy(
    name: Name = "dorylus",
    target: Target = "aws",
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    dry_run: DryRun = False,
) -> None:
    """Delete the function and its role, if Dorylus made them; its log stays."""
    from dorylus.functions import (
        Deployment,
        DesiredState,
        FunctionConfig,
        Unbuilt,
        destroy_calls,
        find_calls,
        format_plan,
    )

    access = _access(target, region, profile, endpoint_url)
    desired = DesiredState(FunctionConfig(name=name), Unbuilt("none is needed"), access.region)
    if dry_run:
        typer.echo(format_plan([*find_calls(desired), *destroy_calls(desired, desired.deployed())]))
        typer.echo("Nothing was called. What is not there, or was not made by Dorylus, is left alone.")
        return
    typer.echo(f"{name}: {_done(Deployment(desired, access, _tell).destroy())}")


def _access(target: str, region: str | None, profile: str | None, endpoint_url: str | None) -> "AwsAccess":
    from dorylus.functions import aws_access, local_access

    if target not in TARGETS:
        raise ConfigError(unknown_name("target", target, TARGETS))
    if target == "aws" and endpoint_url is not None:
        raise ConfigError("--endpoint-url is where a stand-in listens: give --target local with it.")
    if target == "local" and (region or profile):
        raise ConfigError("--region and --profile are AWS's: a stand-in on this machine has neither.")
    return aws_access(region, profile) if target == "aws" else local_access(endpoint_url)


def _settings(
    memory: int,
    timeout: int,
    concurrency: int | None,
    subnets: list[str] | None,
    security_groups: list[str] | None,
    role: str | None,
    tags: list[str] | None,
) -> dict[str, Any]:
    pairs = [tag.partition("=") for tag in tags or []]
    if bad := [key for key, equals, _ in pairs if not (key and equals)]:
        raise ConfigError(f"--tag {bad[0]}: tags are given as KEY=VALUE.")
    return {
        "memory_mb": memory,
        "timeout_s": timeout,
        "concurrency": concurrency,
        "subnets": tuple(subnets or ()),
        "security_groups": tuple(security_groups or ()),
        "role": role,
        "tags": {key: value for key, _, value in pairs},
    }


def _desired_state(
    access: "AwsAccess",
    name: str,
    architecture: str | None,
    python: str | None,
    settings: dict[str, Any],
    *,
    download: bool,
) -> "DesiredState":
    """The desired state, with its zip; without a zip where its packages must be fetched and may not be."""
    from dorylus.functions import DesiredState, FunctionConfig, Unbuilt, build, needs_download, on_aws, on_this_machine

    if access.is_local and (architecture or python):
        raise ConfigError("--architecture and --python are for AWS: on this machine functions run with this Python.")
    platform = on_this_machine() if access.is_local else on_aws(architecture, python)
    config = FunctionConfig(name=name, platform=platform, **settings)
    missing = [] if download else needs_download(platform)
    if missing:
        return DesiredState(config, Unbuilt(f"pip would fetch {', '.join(missing)} for {platform}"), access.region)
    return DesiredState(config, build(platform), access.region)


def _tell(call: "ApiCall") -> None:
    typer.echo(str(call))


def _done(calls: "list[ApiCall]") -> str:
    return f"done, with {len(calls)} calls" if calls else "nothing to do"
