"""Sources compiled ahead: a function's folder cannot be written to, so every cold start would compile them again."""

import importlib.util
import marshal
from pathlib import PurePosixPath

from dorylus.functions.deploy.platforms import PYTHON_HERE, Platform

_NEVER_CHECKED = (0b01).to_bytes(4, "little")  # named after the source's hash, and taken without a look at the source
_WITHOUT_REFERENCES = 2  # later versions of the format write an object differently if something else holds it, too


def compiled(place: str, source: bytes, platform: Platform) -> tuple[str, bytes] | None:
    """A source's place and content when compiled; None where this Python compiles for another one than is asked for."""
    if platform.python != PYTHON_HERE:
        return None
    try:
        code = compile(source, place, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):  # a file for some other version; nobody imports it
        return None
    path = PurePosixPath(place)
    name = path.parent / "__pycache__" / f"{path.stem}.{_tag()}.pyc"
    head = importlib.util.MAGIC_NUMBER + _NEVER_CHECKED + importlib.util.source_hash(source)
    return str(name), head + marshal.dumps(code, _WITHOUT_REFERENCES)


def _tag() -> str:
    return f"cpython-{PYTHON_HERE.replace('.', '')}"
