"""Compiles sources for the Python that runs this file: a zip on standard input, a zip of bytecode on standard output.

A script that needs only the standard library: the function's Python may not have Dorylus installed.
"""

import importlib.util
import io
import marshal
import sys
import warnings
import zipfile
from pathlib import PurePosixPath

_NEVER_CHECKED = (0b01).to_bytes(4, "little")  # validated by the source's hash, which is not checked at import
_WITHOUT_REFERENCES = 2  # later formats write an object differently depending on its reference count


def compiled(place: str, source: bytes) -> "tuple[str, bytes] | None":
    """The path and content of the compiled source; None if the source needs another version of Python."""
    try:
        code = compile(source, place, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):  # it is never imported
        return None
    path = PurePosixPath(place)
    name = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    head = importlib.util.MAGIC_NUMBER + _NEVER_CHECKED + importlib.util.source_hash(source)
    try:
        return str(name), head + marshal.dumps(code, _WITHOUT_REFERENCES)
    except ValueError:  # from Python 3.14 on constants may be slices, which this format cannot write
        return str(name), head + marshal.dumps(code)


def main() -> None:
    """From standard input to standard output."""
    warnings.simplefilter("ignore")  # warnings about the sources of other packages
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read())) as sources, zipfile.ZipFile(made, "w") as bytecode:
        for place in sources.namelist():
            found = compiled(place, sources.read(place))
            if found is not None:
                bytecode.writestr(*found)
    sys.stdout.buffer.write(made.getvalue())


if __name__ == "__main__":
    main()
