"""The course of training as TensorBoard reads it: the numbers of a CSV log, in an event file beside it.

The CSV is the truth. A file is made from it whenever training begins or goes on, and grows by each line that the CSV
grows by. So the curves of a run that was killed are those of one that was not, whatever the kill left of the file.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Iterable, Mapping

from pipeline.errors import UserError
from pipeline.files import append_bytes, write_bytes
from pipeline.places import Place
from pipeline.training.config import TrainingConfig
from pipeline.training.log import TrainingLog

AXES = ("step", "samples")  # columns that say when


def training_log(path: Place, config: TrainingConfig) -> TrainingLog:
    """The log at ``path``, with events where the config wants them: a run for each folder, one within it for others.

    Raises:
        UserError: as :class:`WithEvents` says.
    """
    if not config.tensorboard:
        return TrainingLog(path)
    folder = path.parent if path.stem == "log" else path.parent / path.stem
    return WithEvents(path, folder, config.batch_size)


class WithEvents(TrainingLog):
    """A log whose folder is a run of TensorBoard: a scalar for each column, over the samples seen."""

    def __init__(self, path: Place, folder: Place, batch_size: int) -> None:
        """Find the package.

        Args:
            path: of the CSV.
            folder: for the event file.
            batch_size: samples of a step.

        Raises:
            UserError: TensorBoard is not installed.
        """
        super().__init__(path)
        try:
            import tensorboard.summary.writer.record_writer  # noqa: F401
        except ImportError:
            raise UserError(
                "train_head.tensorboard=true needs the package tensorboard: pip install 'hedgerow[tensorboard]'. "
                "log.csv is written without it."
            ) from None
        self.folder, self.batch_size = folder, batch_size
        self._file: Place | None = None

    def cut(self, step: int) -> int:
        """As :class:`TrainingLog` says; then what is left is written as events, in a file of a later name.

        It begins with a mark that makes readers forget what earlier files said. The last of these stays, since a
        TensorBoard that watches it would not find its way to a later one if it were gone.
        """
        damaged = super().cut(step)
        old: list[Place] = sorted(self.folder.glob("events.out.tfevents.*"), key=lambda path: path.name)
        number = max([int(time.time()), *(int(path.name.split(".")[3]) + 1 for path in old)])
        self._file, rows = self.folder / f"events.out.tfevents.{number:010d}.hedgerow", self.rows()
        if rows or old:
            write_bytes(self._file, _head() + self._records(rows))
        for path in old[:-1]:
            path.unlink(missing_ok=True)
        return damaged

    def append(self, row: Mapping[str, float]) -> None:
        """Add a line to both, durably."""
        super().append(row)
        assert self._file is not None, "cut() comes first"
        append_bytes(self._file, (b"" if self._file.exists() else _head()) + self._records([row]))

    def _records(self, rows: Iterable[Mapping[str, float]]) -> bytes:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        events = []
        for row in rows:
            values = [
                Summary.Value(tag=name, simple_value=value)
                for name, value in row.items()
                if name not in AXES and math.isfinite(value)
            ]
            samples = int(row["step"]) * self.batch_size
            events.append(Event(wall_time=time.time(), step=samples, summary=Summary(value=values)))
        return _framed(events)


def _head() -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    began = Event(wall_time=time.time(), step=0, session_log=SessionLog(status=SessionLog.START))
    return _framed([Event(wall_time=time.time(), file_version="brain.Event:2"), began])


def _framed(events: Iterable[object]) -> bytes:
    from tensorboard.summary.writer.record_writer import RecordWriter

    out = io.BytesIO()
    writer = RecordWriter(out)
    for event in events:
        writer.write(event.SerializeToString())  # type: ignore[attr-defined]
    return out.getvalue()
