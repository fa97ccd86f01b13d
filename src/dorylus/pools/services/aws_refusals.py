"""Which fault it is when AWS Lambda, or a function on it, does not answer; in words without a credential."""

import json
from typing import Any, Final

from dorylus.errors import TrainingError
from dorylus.functions.deploy.refusals import code_of, cure, is_about_credentials, said, status_of
from dorylus.pools.faults import Lost, Throttled, Unavailable

_THROTTLED: Final = frozenset({
    "EC2ThrottledException", "ProvisionedThroughputExceededException", "RequestLimitExceeded", "Throttling",
    "ThrottlingException", "TooManyRequestsException",
})  # fmt: skip
_FOR_NOW: Final = frozenset({"ResourceConflictException", "ResourceNotReadyException", "SnapStartNotReadyException"})
_TOO_LARGE: Final = frozenset({"RequestEntityTooLargeException", "RequestTooLargeException"})
_NOT_REACHED: Final = frozenset({"EndpointConnectionError", "ProxyConnectionError", "SSLError", "NoRegionError"})
_BROKEN: Final = frozenset({  # a function that fails so once fails so always
    "Runtime.HandlerNotFound", "Runtime.ImportModuleError", "Runtime.InvalidEntrypoint", "Runtime.MalformedHandlerName",
    "Runtime.UserCodeSyntaxError",
})  # fmt: skip
_KILLED: Final = frozenset({"Runtime.ExitError", "Runtime.OutOfMemory"})
_ANSWER_TOO_LARGE: Final = "Function.ResponseSizeTooLarge"
_MOST_CHARACTERS: Final = 500


def fault_of_error(error: Exception, function: str, timeout_s: float) -> TrainingError:
    """The fault behind what boto3 raised."""
    code, name = code_of(error), type(error).__name__
    if code in _THROTTLED:
        return Throttled(_retry_after_s(error), f"{function} takes no more invocations for now: {said(error)}")
    if code == "ResourceNotFoundException":
        return Unavailable(f"there is no function {function} in this region: dorylus functions deploy makes it.")
    if code in _TOO_LARGE:
        return TrainingError(f"an invocation of {function} was too large: {said(error)} Use more intervals.")
    if is_about_credentials(error) or name in _NOT_REACHED:
        return Unavailable(f"{function} cannot be invoked: {said(error)} {cure(error)}".rstrip())
    if name in ("ReadTimeoutError", "ConnectTimeoutError"):
        return Lost(f"{function} gave no answer within {timeout_s:g} s.")
    if not code or code in _FOR_NOW or status_of(error) >= 500:
        return Lost(f"an invocation of {function} came to nothing: {said(error)}")
    return Unavailable(f"{function} cannot be invoked: {said(error)} {cure(error)}".rstrip())


def fault_of_answer(content: bytes, function: str) -> TrainingError:
    """The fault behind an answer that is the function's failure: it crashed, ran out of time or could not start."""
    kind, message = _failure(content)
    if kind == _ANSWER_TOO_LARGE:
        return TrainingError(f"an answer of {function} was too large: {message} Use more intervals.")
    if kind in _BROKEN:
        return Unavailable(f"{function} cannot start ({kind}): {message} dorylus functions deploy replaces it.")
    cure = " If it ran out of memory: dorylus functions deploy --memory gives it more." if kind in _KILLED else ""
    return Lost(f"{function} failed on its task ({kind}): {message}{cure}")


def _failure(content: bytes) -> tuple[str, str]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    told: dict[str, Any] = found if isinstance(found, dict) else {}
    message = str(told.get("errorMessage") or "it said nothing").rstrip(". ")
    return str(told.get("errorType") or "unknown")[:_MOST_CHARACTERS], f"{message[:_MOST_CHARACTERS]}."


def _retry_after_s(error: Any) -> float | None:
    """How long the service asks to be left alone, if it says."""
    told = error.response.get("retryAfterSeconds")
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return max(0.0, float(headers.get("retry-after") or told))
    except (TypeError, ValueError):
        return None
