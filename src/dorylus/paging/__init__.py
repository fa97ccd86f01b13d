"""Arrays larger than memory: address space for all of one, memory for the part at hand, a file for the rest.

Code that works on rows of such an array sees an ordinary NumPy array. Whoever runs it says which rows come in before,
and which may go afterwards. Pages are moved by explicit reads and writes past the page cache, so that the memory in use
is what this package says it is, and not whatever the kernel has kept.
"""

from dorylus.paging.block_file import BlockFile, ReadOnlyFile, ScratchFile
from dorylus.paging.block_sums import BlockSums
from dorylus.paging.file_state import FileState, changed
from dorylus.paging.mover import Moved, Mover
from dorylus.paging.paged_array import PagedArray
from dorylus.paging.pager import Pager
from dorylus.paging.stage import Stage, Tell
from dorylus.paging.widened_array import WidenedArray
from dorylus.paging.window import PAGE, Window

__all__ = [
    "PAGE",
    "BlockFile",
    "BlockSums",
    "FileState",
    "Moved",
    "Mover",
    "PagedArray",
    "Pager",
    "ReadOnlyFile",
    "ScratchFile",
    "Stage",
    "Tell",
    "WidenedArray",
    "Window",
    "changed",
]
