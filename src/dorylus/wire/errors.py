"""What goes wrong between two ends of a wire.

    DorylusError
    └── WireError          no answer: nobody there, a key not accepted, a deadline passed, a port closed
        ├── FrameError     bytes that are no frame, or something that no frame can carry
        └── Refused        the other end understood the request and says no

No message of these holds a key, a header's values or an array's.
"""

from dorylus.errors import DorylusError


class WireError(DorylusError):
    """A request that got no answer."""

    exit_code = 1


class FrameError(WireError):
    """Bytes that are no frame, or something that no frame can carry."""


class Refused(WireError):  # noqa: N818  (it reads as what it says)
    """A request that the other end declines: what ``answer`` raises travels to the client as this, with its text.

    ``kind`` is what the port counts it under: refused, failed, expired, garbage, oversize or busy.
    """

    def __init__(self, text: str, kind: str = "refused") -> None:
        super().__init__(text)
        self.kind = kind
