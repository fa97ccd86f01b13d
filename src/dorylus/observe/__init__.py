"""The run log: what a run tells about itself, for whoever reads along or afterwards."""

from dorylus.observe.jsonl import JsonlSink
from dorylus.observe.read_log import current, last_time, read_log
from dorylus.observe.run_log import RunLog
from dorylus.observe.sink import MemorySink, Record, Sink

__all__ = ["JsonlSink", "MemorySink", "Record", "RunLog", "Sink", "current", "last_time", "read_log"]
