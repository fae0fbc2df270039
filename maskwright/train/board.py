"""Scalars for TensorBoard, written as they come.

`torch.utils.tensorboard` writes in a thread of its own, which answers a full disk with a traceback
and ends; here that is an error like any other. The file is the same.
"""

import importlib
import importlib.util
import os
import socket
import time
from pathlib import Path

from maskwright.files import naming_file


def has_tensorboard() -> bool:
    """Whether the extra ``tensorboard`` is installed, which `Board` needs."""
    return importlib.util.find_spec("tensorboard") is not None


class Board:
    """Another event file in a folder.

    Args:
        folder: made if it is not there.
        last_step: TensorBoard drops what earlier files say of later steps.

    Raises:
        OSError: from every method; names the file.
    """

    def __init__(self, folder: Path, last_step: int | None = None) -> None:
        self._events = importlib.import_module("tensorboard.compat.proto.event_pb2")
        self._summaries = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        records = importlib.import_module("tensorboard.summary.writer.record_writer")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._path = folder / name
        self._writer = records.RecordWriter(self._path.open("wb"))
        self._write(file_version="brain.Event:2")
        if last_step is not None:
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._write(session_log=start, step=last_step + 1)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Adds a point to a curve."""
        point = self._summaries.Summary.Value(tag=name, simple_value=value)
        self._write(summary=self._summaries.Summary(value=[point]), step=step)

    def _write(self, **fields: object) -> None:
        with naming_file(self._path):
            event = self._events.Event(wall_time=time.time(), **fields)
            self._writer.write(event.SerializeToString())
            self._writer.flush()

    def close(self) -> None:
        with naming_file(self._path):
            self._writer.close()
