"""What AWS says when it refuses, in words that may be shown: an answer to a bad signature repeats what was signed."""

import re
from typing import Any, Final

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
)  # they name the proxy, password and all
_KEY_ID: Final = re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{12,}\b")
_MOST_CHARACTERS: Final = 300


def code_of(error: BaseException) -> str:
    """The service's own name for what is wrong; empty if no service said anything."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def status_of(error: Any) -> int:
    """The HTTP status of the refusal; 0 if there was none."""
    response = getattr(error, "response", None)
    found = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    return found if isinstance(found, int) else 0


def is_about_credentials(error: BaseException) -> bool:
    """Whether AWS does not know us, or there is nothing to be known by."""
    return code_of(error) in CREDENTIALS or type(error).__name__ in _NO_CREDENTIALS


def said(error: BaseException) -> str:
    """What is wrong, in a sentence without a credential in it."""
    name = code_of(error) or type(error).__name__
    if is_about_credentials(error) or name in _SILENT:
        return f"{name}."
    response = getattr(error, "response", None)
    told = response.get("Error", {}).get("Message", "") if isinstance(response, dict) else str(error)
    text = _KEY_ID.sub("...", " ".join(str(told).split()))[:_MOST_CHARACTERS].rstrip(". ")
    return f"{name}: {text}." if text else f"{name}."


def cure(error: BaseException) -> str:
    """What to do about it."""
    if is_about_credentials(error):
        return "Check the credentials that boto3 finds (aws sts get-caller-identity uses the same)."
    if code_of(error) in NO_RIGHTS:
        return "Ask for the permissions that docs/functions.md lists."
    if type(error).__name__ == "EndpointConnectionError":
        return "Check the region and the network; for a stand-in, that it still runs."
    return ""
