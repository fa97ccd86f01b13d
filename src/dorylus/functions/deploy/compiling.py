"""Compiles sources for the Python that runs this file: a zip on standard input, a zip of bytecode on standard output.

A script that needs nothing but the standard library: the function's Python may be one that has no Dorylus.
"""

import importlib.util
import io
import marshal
import sys
import warnings
import zipfile
from pathlib import PurePosixPath

_NEVER_CHECKED = (0b01).to_bytes(4, "little")  # named after the source's hash, and used without a look at the source
_WITHOUT_REFERENCES = 2  # later versions of the format write an object differently if something else holds it, too


def compiled(place: str, source: bytes) -> "tuple[str, bytes] | None":
    """A source's place and content when compiled; None for a source of another version of Python."""
    try:
        code = compile(source, place, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):  # it is never imported
        return None
    path = PurePosixPath(place)
    name = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    head = importlib.util.MAGIC_NUMBER + _NEVER_CHECKED + importlib.util.source_hash(source)
    try:
        return str(name), head + marshal.dumps(code, _WITHOUT_REFERENCES)
    except ValueError:  # it has slices among its constants, from Python 3.14 on, which that version cannot write
        return str(name), head + marshal.dumps(code)


def main() -> None:
    """From standard input to standard output."""
    warnings.simplefilter("ignore")  # of other people's sources
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read())) as sources, zipfile.ZipFile(made, "w") as bytecode:
        for place in sources.namelist():
            found = compiled(place, sources.read(place))
            if found is not None:
                bytecode.writestr(*found)
    sys.stdout.buffer.write(made.getvalue())


if __name__ == "__main__":
    main()
