"""A driver that is killed or loses a node: it prints its epochs as they end, and the run's result in its last line.

python -m ray_bench.lost FOLDER begin|resume|elastic
"""

import json
import sys
from pathlib import Path
from typing import Any

import dorylus
from dorylus.runs.run_log import Record
from ray_bench.runs import LOST, model, summary


class Epochs:
    """Prints how many epochs are done, and with how many servers."""

    def write(self, record: Record) -> None:
        if record["kind"] == "epoch":
            print(json.dumps({"epoch": record["epoch"], "servers": len(record["servers"])}), flush=True)

    def close(self) -> None:
        pass


def main(folder: Path, what: str) -> dict[str, Any]:
    """Train, resume the run of another driver, or train elastically on the nodes that are left."""
    run = folder / "run"
    if what == "resume":
        with dorylus.Trainer.resume(
            run, dorylus.Graph.open(folder / "graph"), model("gcn"), sinks=[Epochs()]
        ) as trainer:
            begun_with = trainer.epoch
            return {**summary(trainer.run().result()), "resumed_after": begun_with}
    if what == "begin":
        more: dict[str, Any] = {"run_dir": str(run), "servers": 2}
    else:
        more = {"elastic": True, "revive_s": 6.0, "threads": 2}
    settings = LOST | more
    graph = dorylus.Graph.open(folder / "graph")
    with dorylus.Trainer(graph, model("gcn"), cluster="ray", sinks=[Epochs()], **settings) as trainer:
        result = trainer.run().result()
        return {**summary(result), "servers": result.config.servers}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
