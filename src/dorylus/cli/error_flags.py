"""Errors of an ingest in the words of its command: settings of Python become the flags that say the same."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from dorylus.errors import DorylusError

_NAMES = "num_vertices|columns|delimiter|format|dtype|ids|vertices|reorder|feature_dtype"
_VALUE = r"'[^']*'|\[[^]]*\]|\([^)]*\)|-?[\w,]*\w"
_SETTING = re.compile(
    rf"(?<![\w/.=-])(?P<name>{_NAMES})=(?P<value>{_VALUE})?( \((?:dorylus ingest )?--[^)]*\))?(?![\w/])"
)
_SWITCHES = {
    "undirected=False (--directed)": "--directed",
    "drop_duplicates=False (--keep-duplicates)": "--keep-duplicates",
    "Pass overwrite=True": "Give --overwrite",
    "header=True (dorylus ingest --header)": "--header",
    "header=False (dorylus ingest --no-header)": "--no-header",
}


@contextmanager
def in_flags() -> Iterator[None]:
    """Says anew, with flags, what was refused within."""
    try:
        yield
    except DorylusError as error:
        raise type(error)(with_flags(str(error))) from error


def with_flags(sentence: str) -> str:
    """A sentence that names flags instead of settings; names within paths and words are left alone."""
    for switch, flag in _SWITCHES.items():
        sentence = sentence.replace(switch, flag)
    return _SETTING.sub(_flag, sentence)


def _flag(found: re.Match[str]) -> str:
    value = found["value"] or ""
    given = value[1:-1] if value.startswith("'") else re.sub(r"[][()' ]", "", value)
    return f"--{found['name'].replace('_', '-')} {given}".rstrip()
