"""The `dorylus` program with dense tasks that take seconds on request of the fault bench.

    python -m fault_bench.driver SLOW_FOLDER ARGUMENTS OF DORYLUS

A file ``7.5`` in SLOW_FOLDER makes the next dense task of a GCN, in whatever process it runs, sleep 7.5 seconds. The
task removes the file first, so that one file delays one task.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from dorylus.saga.gcn import GCN


class SlowGCN(GCN):
    """A GCN some of whose tasks sleep. The numbers are those of a GCN."""

    folder = ""

    def __init__(self, in_columns: int, out_columns: int, **finish: Any) -> None:
        super().__init__(in_columns, out_columns, **finish)
        self.slow_folder = type(self).folder  # on the instance: it travels with the program to other processes

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        """The same as a GCN's, perhaps later."""
        for path in Path(self.slow_folder).iterdir():
            with suppress(FileNotFoundError):  # another task was faster
                path.unlink()
                time.sleep(float(path.name))
                break
        return super().apply_vertex(own, gathered)


def main() -> None:
    """Run the command line with slow layers in place of GCN's, under the same name."""
    # Unpickled on a node, the class is looked up by module: "__main__" is another module there.
    import dorylus.saga.builders
    from dorylus.cli import main as dorylus_main
    from fault_bench.driver import SlowGCN as Importable

    Importable.folder = os.path.abspath(sys.argv[1])
    dorylus.saga.builders.GCN = Importable  # type: ignore[misc]
    dorylus_main(sys.argv[2:])


if __name__ == "__main__":
    main()
