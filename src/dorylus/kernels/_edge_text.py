"""Reading edges from a block of text: a line an edge.

A line is cut into fields by runs of blanks and tabs, or by one character, around which blanks do not count. A comment
opens where a field could begin: at the start of a line, after a blank or after the separator. Lines without a field are
passed over.
"""

from typing import NamedTuple, TypeAlias

from dorylus.kernels import _native
from dorylus.kernels._arrays import Bytes, Floats, Offsets

TEXT_FAULTS = (None, "fields", "quotes", "number", "overflow", "range", "empty", "weight")
"""What can be wrong with a line: the number of fields, quotes not closed, an end that is no whole number, one beyond 64
bits or beyond what is allowed, an empty name, a weight that is no finite number."""

Names: TypeAlias = tuple[Bytes, Offsets]
"""(bytes, offsets): name i is ``bytes[offsets[i]:offsets[i + 1]]``."""


class TextForm(NamedTuple):
    """How the lines of a text are made: columns count from 0, every line has ``num_fields``."""

    source: int
    destination: int
    weight: int | None
    num_fields: int
    separator: str | None = None
    """One character of ASCII, or None for runs of blanks and tabs."""
    comments: str = "#%"
    lowest: int = -(2**63)
    """Numbers of vertices lie between ``lowest`` and ``highest``."""
    highest: int = 2**63 - 1

    @property
    def quotes(self) -> bool:
        """Whether a field may stand in double quotes, within which no separator counts and two quotes are one."""
        return self.separator in (",", ";")


class TextFault(NamedTuple):
    """The line that is no edge, by its place in the text, and one of ``TEXT_FAULTS``."""

    what: str
    begin: int
    end: int


class TextEdges(NamedTuple):
    """The edges of a text up to its end or its first fault; ``num_lines`` counts the lines before that."""

    source: Offsets | Names
    destination: Offsets | Names
    weight: Floats | None
    num_lines: int
    fault: TextFault | None


def edge_text(text: Bytes, form: TextForm, *, names: bool = False) -> TextEdges:
    """The edges in ``text``, uint8 [length], up to the first bad line: ends are int64 numbers, or names."""
    weight = -1 if form.weight is None else form.weight
    source, destination, weights, num_lines, fault, begin, end = _native.edge_text(
        text, form.source, form.destination, weight, form.num_fields, form.separator or "", form.quotes,
        form.comments, form.lowest, form.highest, names,
    )  # fmt: skip
    what = TEXT_FAULTS[fault]
    return TextEdges(source, destination, weights, num_lines, None if what is None else TextFault(what, begin, end))
