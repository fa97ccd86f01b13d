"""The run log: what a run tells about itself, for whoever reads along or afterwards."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.runs import checkpoint
    from dorylus.runs.checkpoint import Checkpoint
    from dorylus.runs.checkpoint_store import CheckpointStore
    from dorylus.runs.identity import fingerprint, graph_identity
    from dorylus.runs.jsonl import JsonlSink, MemorySink, Record, Sink
    from dorylus.runs.ledger import UsageLedger, newest, read_ledger
    from dorylus.runs.progress import RunProgress, restore
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
    "RunFolder",
    "RunLock",
    "RunLog",
    "RunProgress",
    "RunSpec",
    "Sink",
    "UsageLedger",
    "check_free",
    "checkpoint",
    "current",
    "fingerprint",
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
        "checkpoint": "Checkpoint",
        "checkpoint_store": "CheckpointStore",
        "identity": "fingerprint graph_identity",
        "jsonl": "JsonlSink MemorySink Record Sink",
        "ledger": "UsageLedger newest read_ledger",
        "progress": "RunProgress restore",
        "run_folder": "LEDGER RunFolder RunSpec check_free make_folder read_run_toml",
        "run_lock": "RunLock",
        "run_log": "RunLog current last_time read_log",
    },
)
