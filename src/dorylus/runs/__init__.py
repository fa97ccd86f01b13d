"""A run on disk: its folder, checkpoints, log and usage."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.runs import checkpoint
    from dorylus.runs.checkpoint import Checkpoint, CheckpointStore
    from dorylus.runs.jsonl import JsonlSink, MemorySink, Record, Sink, check_sinks
    from dorylus.runs.ledger import UsageLedger, newest, read_ledger
    from dorylus.runs.progress import Restored, RunProgress, fingerprint_of, graph_identity, restore
    from dorylus.runs.run_folder import LEDGER, RunFolder, RunSpec, check_free, make_folder, read_run_toml
    from dorylus.runs.run_lock import RunLock
    from dorylus.runs.run_log import RunLog, current, last_time, read_log

__all__ = [
    "LEDGER",
    "Checkpoint",
    "CheckpointStore",
    "JsonlSink",
    "MemorySink",
    "Record",
    "Restored",
    "RunFolder",
    "RunLock",
    "RunLog",
    "RunProgress",
    "RunSpec",
    "Sink",
    "UsageLedger",
    "check_free",
    "check_sinks",
    "checkpoint",
    "current",
    "fingerprint_of",
    "graph_identity",
    "last_time",
    "make_folder",
    "newest",
    "read_ledger",
    "read_log",
    "read_run_toml",
    "restore",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".": "checkpoint",
        "checkpoint": "Checkpoint CheckpointStore",
        "jsonl": "JsonlSink MemorySink Record Sink check_sinks",
        "ledger": "UsageLedger newest read_ledger",
        "progress": "Restored RunProgress fingerprint_of graph_identity restore",
        "run_folder": "LEDGER RunFolder RunSpec check_free make_folder read_run_toml",
        "run_lock": "RunLock",
        "run_log": "RunLog current last_time read_log",
    },
)
