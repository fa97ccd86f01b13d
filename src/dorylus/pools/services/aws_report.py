"""What AWS Lambda says of an invocation at the end of its log: what it bills, and whether it was a cold start."""

import re
from base64 import b64decode
from binascii import Error
from dataclasses import dataclass
from typing import Final

_BILLED: Final = re.compile(r'Billed Duration: (\d{1,12}) ms|"billedDurationMs":\s{0,9}(\d{1,12})(?!\d)')
_INIT: Final = re.compile(
    r'Init Duration: (\d{1,12}(?:\.\d{1,9})?) ms|"initDurationMs":\s{0,9}(\d{1,12}(?:\.\d{1,9})?)(?![\d.])'
)


@dataclass(frozen=True)
class Report:
    """Milliseconds that are billed, those of a cold start included; None for all that was not said."""

    billed_ms: float | None = None
    init_ms: float | None = None
    cold: bool | None = None

    @classmethod
    def of(cls, log: str | None) -> "Report":
        """The report in the end of a log, as an invocation's answer brings it: in base64, as text or as JSON."""
        text = _decoded(log)
        billed_ms = _last(_BILLED, text)
        if billed_ms is None:
            return cls()
        init_ms = _last(_INIT, text)
        return cls(billed_ms, init_ms, init_ms is not None)


def _decoded(log: str | None) -> str:
    try:
        return b64decode(log or "").decode(errors="replace")
    except (Error, ValueError):
        return ""


def _last(pattern: re.Pattern[str], text: str) -> float | None:
    found = [first or second for first, second in pattern.findall(text)]
    return float(found[-1]) if found else None
