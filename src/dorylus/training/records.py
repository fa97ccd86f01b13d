"""What the trainer writes into the run log, as plain data."""

from typing import Any

from dorylus.cluster import EpochReport, memory
from dorylus.graph import Graph
from dorylus.saga import Program
from dorylus.training.config import RunConfig
from dorylus.training.limits import Limits


def run_record(graph: Graph, program: Program, name: str, config: RunConfig) -> dict[str, Any]:
    """What a run is: its settings, graph and model."""
    return {
        "config": config.to_dict(),
        "graph": {
            "name": graph.name,
            "vertices": graph.num_vertices,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
            "multilabel": graph.multilabel,
        },
        "model": {"name": name, "parameters": sum(p.numel() for p in program.parameters())},
    }


def epoch_record(report: EpochReport, epoch: int, usd: float) -> dict[str, Any]:
    """What an epoch, counted from 1, did, and what the run has cost by its end."""
    record = {
        "epoch": epoch,
        "loss": report.loss,
        "seconds": report.seconds,
        "memory_bytes": memory.resident_bytes(),
        "tasks": report.seconds_by_kind(),
        "busy": report.busy_seconds,
        "traffic": report.traffic,
        "ages": report.ages,
        "waits": report.waits,
        "usd": usd,
    }
    if report.moved is not None:
        record["files"] = {"read_bytes": report.moved.read, "written_bytes": report.moved.written}
    if report.servers:
        record["servers"] = [each._asdict() for each in report.servers]
    return record


def memory_record(limits: Limits) -> dict[str, Any]:
    """How a run keeps its memory limit, and what that is predicted to take."""
    figures = limits.figures
    return {
        "peak_bytes": limits.peak,
        "resident": dict(figures.resident),
        "on_disk": dict(figures.on_disk),
        "read_bytes": figures.read,
        "written_bytes": figures.written,
    }
