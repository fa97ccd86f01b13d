"""A run on disk: its folder, checkpoints, log and usage."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.runs import checkpoint
    from dorylus.runs.checkpoint import Checkpoint, CheckpointStore
    from dorylus.runs.ledger import UsageLedger, newest, read_ledger
    from dorylus.runs.loggers import LoggerSink, LoggerWarning, check_loggers, flat_settings, open_loggers
    from dorylus.runs.progress import Restored, RunProgress, TrainedOn, fingerprint_of, graph_identity, restore
    from dorylus.runs.run_folder import LEDGER, RunFolder, RunSpec, check_free, make_folder, read_run_toml
    from dorylus.runs.run_lock import RunLock, is_locked
    from dorylus.runs.run_log import (
        JsonlSink,
        LogFollower,
        MemorySink,
        Record,
        RunLog,
        Sink,
        check_sinks,
        current,
        last_time,
        malformed_refused,
        read_log,
    )

__all__ = [
    "LEDGER",
    "Checkpoint",
    "CheckpointStore",
    "JsonlSink",
    "LogFollower",
    "LoggerSink",
    "LoggerWarning",
    "MemorySink",
    "Record",
    "Restored",
    "RunFolder",
    "RunLock",
    "RunLog",
    "RunProgress",
    "RunSpec",
    "Sink",
    "TrainedOn",
    "UsageLedger",
    "check_free",
    "check_loggers",
    "check_sinks",
    "checkpoint",
    "current",
    "fingerprint_of",
    "flat_settings",
    "graph_identity",
    "is_locked",
    "last_time",
    "make_folder",
    "malformed_refused",
    "newest",
    "open_loggers",
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
        "ledger": "UsageLedger newest read_ledger",
        "loggers": "LoggerSink LoggerWarning check_loggers flat_settings open_loggers",
        "progress": "Restored RunProgress TrainedOn fingerprint_of graph_identity restore",
        "run_folder": "LEDGER RunFolder RunSpec check_free make_folder read_run_toml",
        "run_lock": "RunLock is_locked",
        "run_log": "JsonlSink LogFollower MemorySink Record RunLog Sink "
        "check_sinks current last_time malformed_refused read_log",
    },
)
