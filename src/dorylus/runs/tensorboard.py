"""TensorBoard: event files in the folder ``tensorboard`` of a run. ``tensorboard --logdir runs`` shows them."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dorylus.errors import ConfigError, given
from dorylus.runs.loggers import EpochFigures, LoggedRun


def open_tensorboard(run: LoggedRun) -> "TensorBoardLogger":
    """Writes on behind the event files of a run; refused for a run without a folder."""
    if run.folder is None:
        raise ConfigError(
            f"{given('log_to', 'tensorboard')} without {given('run_dir')}: its files lie in the run's folder, so name "
            "one."
        )
    return TensorBoardLogger(run, run.folder / "tensorboard")


class TensorBoardLogger:
    """Writes figures as scalars, settings and the result as texts.

    Steps after the checkpoint that a run is resumed from are taken back: they are trained again.
    """

    run_id = "tensorboard"

    def __init__(self, run: LoggedRun, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.last_step = min(_last_step(folder), run.resumed_from or 0)
        self._writer = EventFileWriter(str(folder))
        self._add(self.last_step + 1, session_log=SessionLog(status=SessionLog.START))
        self._write_text("settings", run.settings)

    def log(self, steps: Sequence[EpochFigures]) -> None:
        """Writes a scalar for each figure."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        for step, figures in steps:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
            self._add(step, summary=Summary(value=values))
        self._writer.flush()

    def summarise(self, figures: Mapping[str, Any]) -> None:
        """Writes the figures of the result as a table."""
        self._write_text("result", figures)

    def close(self, *, finished: bool) -> None:
        """Closes the file."""
        self._writer.close()

    def _write_text(self, tag: str, table: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING
        from tensorboard.plugins.text.metadata import create_summary_metadata

        lines = [f"| {name} | {value} |" for name, value in table.items()]
        text = "\n".join(["| name | value |", "|---|---|", *lines])
        value = Summary.Value(
            tag=tag,
            metadata=create_summary_metadata(display_name="", description=""),
            tensor=TensorProto(dtype=DT_STRING, string_val=[text.encode()]),
        )
        self._add(0, summary=Summary(value=[value]))
        self._writer.flush()

    def _add(self, step: int, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=step, **content))


def _last_step(folder: Path) -> int:
    """The last step in the event files of a folder; 0 where there are none."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    files = sorted(folder.glob("events.out.tfevents.*"))
    return max((event.step for file in files for event in EventFileLoader(str(file)).Load()), default=0)
