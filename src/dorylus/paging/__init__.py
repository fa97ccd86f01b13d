"""Arrays larger than memory: address space for all of one, memory for the part in use, a file for the rest.

Code that works on rows of such an array sees an ordinary NumPy array. Its caller reads rows before that, and drops them
afterwards. Pages are moved by explicit reads and writes past the page cache, so that the memory in use is what this
package counts, and not what the kernel has kept.

The package does not depend on graphs, plans or limits: stores, shards and graph servers all use it.
"""

from dorylus.paging.block_file import BlockFile, BlockSums, FileState, ReadOnlyFile, ScratchFile, changed, damaged
from dorylus.paging.io_threads import WRITES, IoThreads, Moved
from dorylus.paging.paged_array import PagedArray, Pager, WidenedArray
from dorylus.paging.reserved_memory import PAGE, ReservedMemory, down, up

__all__ = [
    "PAGE",
    "WRITES",
    "BlockFile",
    "BlockSums",
    "FileState",
    "IoThreads",
    "Moved",
    "PagedArray",
    "Pager",
    "ReadOnlyFile",
    "ReservedMemory",
    "ScratchFile",
    "WidenedArray",
    "changed",
    "damaged",
    "down",
    "up",
]
