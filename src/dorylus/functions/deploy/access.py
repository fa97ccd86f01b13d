"""Access to AWS: region, credentials, clients of its services, and error messages. Nothing here prints a credential.

boto3 finds the credentials (environment, profile, role of the machine). The stand-in on this machine gets made-up ones,
so no real ones are read or sent. AWS's error messages are not shown unchanged: the answer to a bad signature contains
what was signed.
"""

import os
import re
import socket
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from dorylus.errors import ConfigError, unknown_name

LOCAL_REGION: Final = "us-east-1"
LOCAL_PORT: Final = 4566  # where ministack listens by default
_MADE_UP: Final = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
_DIAL_S: Final = 2.0
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
CREDENTIALS: Final = frozenset({
    "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidAccessKeyId", "InvalidClientTokenId",
    "InvalidSignatureException", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
    "NotAuthorized", "OptInRequired", "RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClientException",
})  # fmt: skip
NO_RIGHTS: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_NO_CREDENTIALS: Final = frozenset({
    "CredentialRetrievalError", "NoAuthTokenError", "NoCredentialsError", "PartialCredentialsError", "SSOError",
    "SSOTokenLoadError", "TokenRetrievalError", "UnauthorizedSSOTokenError",
})  # fmt: skip
_SILENT: Final = frozenset(
    {"ProxyConnectionError", "InvalidProxiesConfigError"}
)  # their text contains the proxy's address, with its password
_KEY_ID: Final = re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{12,}\b")
_MOST_CHARACTERS: Final = 300


@dataclass(frozen=True)
class AwsAccess:
    """Where the services are. With an ``endpoint_url`` this is a stand-in on this machine, else AWS."""

    region: str
    endpoint_url: str | None = None
    profile: str | None = None

    def __post_init__(self) -> None:
        if self.endpoint_url is not None and urlsplit(self.endpoint_url).hostname not in _LOOPBACK:
            raise ConfigError(
                f"endpoint_url={self.endpoint_url}: a stand-in for AWS runs on this machine, so its address begins "
                "with http://127.0.0.1."
            )

    @property
    def is_local(self) -> bool:
        """Whether this is a stand-in."""
        return self.endpoint_url is not None

    def is_listened_to(self) -> bool:
        """Whether the stand-in's address accepts connections."""
        address = urlsplit(self.endpoint_url or "")
        try:
            socket.create_connection((address.hostname, address.port or 80), _DIAL_S).close()
        except OSError:
            return False
        return True

    def client(self, service: str, **settings: Any) -> Any:
        """A boto3 client, for use from any thread; ``settings`` are those of botocore's Config."""
        boto3, config = _boto3()
        if not self.is_local:
            session = _session(self.profile)
            return session.client(service, region_name=self.region, config=config(**settings))
        session = boto3.session.Session(**_MADE_UP, region_name=self.region, botocore_session=_blank_session())
        return session.client(service, endpoint_url=self.endpoint_url, config=config(**{**settings, "proxies": {}}))


def aws_access(region: str | None = None, profile: str | None = None) -> AwsAccess:
    """Access to AWS in the named region, by default the one boto3 is configured for. Sends nothing over the network."""
    if region is None:
        region = _session(profile).region_name
    if not region:
        raise ConfigError(
            "no AWS region is named: set AWS_DEFAULT_REGION=eu-central-1 (or another) in the environment, or a region "
            "in ~/.aws/config; dorylus functions takes --region, too."
        )
    _check_region(region)
    return AwsAccess(region, profile=profile)


def local_access(endpoint_url: str | None = None) -> AwsAccess:
    """Access to a stand-in on this machine."""
    return AwsAccess(LOCAL_REGION, endpoint_url or f"http://127.0.0.1:{LOCAL_PORT}")


def _check_region(region: str) -> None:
    """Refuse a region that boto3 does not list: a misspelt one would be noticed only by a time-out."""
    boto3, _ = _boto3()
    session = boto3.session.Session(botocore_session=_blank_session())
    partitions = session.get_available_partitions()
    known = {name for each in partitions for name in session.get_available_regions("lambda", each)}
    if region not in known:
        text = unknown_name("AWS region", region, known)
        raise ConfigError(f"{text} If it is newer than your boto3, take a newer one: pip install --upgrade boto3.")


def _session(profile: str | None) -> Any:
    boto3, _ = _boto3()
    from botocore.exceptions import ProfileNotFound

    try:
        return boto3.session.Session(profile_name=profile)
    except ProfileNotFound as error:
        raise ConfigError(f"{error}: name a profile of ~/.aws/config, or none.") from error


def _blank_session() -> Any:
    """A session that reads no profile of the user's, and so does not fail for a missing one."""
    import botocore.session

    nothing = {"config_file": os.devnull, "credentials_file": os.devnull, "profile": None}
    return botocore.session.Session({name: (None, None, default, None) for name, default in nothing.items()})


def _boto3() -> tuple[Any, Any]:
    try:
        import boto3.session
        from botocore.config import Config
    except ImportError as error:
        raise ConfigError(
            'AWS is called through boto3, which is not installed: pip install "dorylus[lambda]".'
        ) from error
    return boto3, Config


def code_of(error: BaseException) -> str:
    """The service's error code; empty if the error came from no service."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def status_of(error: Any) -> int:
    """The HTTP status of the error; 0 if there was no answer."""
    response = getattr(error, "response", None)
    found = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    return found if isinstance(found, int) else 0


def is_about_credentials(error: BaseException) -> bool:
    """Whether AWS does not accept the credentials, or there are none."""
    return code_of(error) in CREDENTIALS or type(error).__name__ in _NO_CREDENTIALS


def error_text(error: BaseException) -> str:
    """The error as a sentence that contains no credential."""
    name = code_of(error) or type(error).__name__
    if is_about_credentials(error) or name in _SILENT:
        return f"{name}."
    response = getattr(error, "response", None)
    message = response.get("Error", {}).get("Message", "") if isinstance(response, dict) else str(error)
    text = _KEY_ID.sub("...", " ".join(str(message).split()))[:_MOST_CHARACTERS].rstrip(". ")
    return f"{name}: {text}." if text else f"{name}."


def cure(error: BaseException) -> str:
    """The cure of an error, as a sentence."""
    if is_about_credentials(error):
        return "Check the credentials that boto3 finds (aws sts get-caller-identity uses the same)."
    if code_of(error) in NO_RIGHTS:
        return "Ask for the permissions that docs/functions.md lists."
    if type(error).__name__ == "EndpointConnectionError":
        return "Check the region and the network; for a stand-in, that it still runs."
    return ""
