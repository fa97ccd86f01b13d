"""How dense tasks travel to functions and back."""

from dataclasses import dataclass

from dorylus.errors import ConfigError, unknown_name
from dorylus.functions import PRECISIONS

DATA_PATHS = ("auto", "direct", "inline")


@dataclass(frozen=True, kw_only=True)
class FunctionsConfig:
    """Settings of a functions pool.

    - ``data_path``: ``"direct"`` (functions dial our data ports), ``"inline"`` (tensors travel in payloads), or
      ``"auto"``: direct where a function says it can reach us.
    - ``stream``: on the direct path, rows arrive in parts and compute starts on the first.
    - ``precision``: of rows on their way, ``"float32"``, ``"bf16"`` or ``"int8"`` (a scale for each row).
    - ``rematerialize``: gradients run the forward body again; else forward tasks that are asked to keep what their
      gradient needs bring it back, and it is sent along with the gradient: more bytes, less computed.
    - ``part_bytes``, or ``part_rows``: how big a part of the direct path is.
    - ``timeout_s``: how long an invocation may take. ``max_invocations``: how many threads wait for answers at most.
    - ``host``, ``ports``: where the data ports of rows and weights listen (0: any free port), and ``advertise``, the
      address functions dial if it is another one.
    - ``key_lifetime_s``: how long the keys that an invocation brings along open the ports.
    """

    data_path: str = "auto"
    stream: bool = True
    precision: str = "float32"
    rematerialize: bool = True
    part_bytes: int = 1 << 20
    part_rows: int | None = None
    timeout_s: float = 120.0
    max_invocations: int = 256
    host: str = "127.0.0.1"
    ports: tuple[int, int] = (0, 0)
    advertise: str | None = None
    key_lifetime_s: float = 900.0

    def __post_init__(self) -> None:
        if self.data_path not in DATA_PATHS:
            raise ConfigError(unknown_name("data_path", self.data_path, DATA_PATHS))
        if self.precision not in PRECISIONS:
            raise ConfigError(unknown_name("precision", self.precision, PRECISIONS))
        for name in ("part_bytes", "part_rows", "timeout_s", "max_invocations", "key_lifetime_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name}={value}: use a value above 0.")
