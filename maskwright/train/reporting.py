"""Reports the records of a run: to metrics.jsonl, TensorBoard, trackers and the terminal.

TensorBoard's files are written directly: torch's own writer thread dies on a full disk.
"""

import importlib
import importlib.util
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from maskwright.console import Console
from maskwright.errors import TrainingError
from maskwright.files import HeldFolder, naming_file
from maskwright.logs import MetricsLog, Record
from maskwright.objectives.objective import ScoreLine
from maskwright.train.checkpoint import describe_lost_folder
from maskwright.train.panel import Panel
from maskwright.train.trackers import TRACKERS, TrackerThread
from maskwright.train.trainer import Reporter


def has_tensorboard() -> bool:
    """Return True if the extra ``tensorboard`` is installed, which `Board` needs."""
    return importlib.util.find_spec("tensorboard") is not None


class Board:
    """A new TensorBoard event file.

    Args:
        folder: the folder of all event files; created if it does not exist.
        last_step: TensorBoard drops the points of later steps in earlier files.

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
        """Add a point to a curve."""
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


SILENT = Reporter()  # of all ranks but the first


class RunReporter(Reporter):
    """A reporter that writes every record of a run and shows it, within its context.

    Args:
        folder: the run directory; it need not exist before the context begins.
        scores: the scores to show; see `Objective.scores`.
        console: the console to show them on; see `Panel`.
        last_step: the step of the checkpoint that the run resumes from.
        trackers: names of `TRACKERS` and ``tensorboard``; none: TensorBoard if it is installed.
        config: the configuration of the run as plain values, for the trackers.

    Raises:
        TrainingError: from `advance`, if the folder was removed, renamed or replaced.
    """

    def __init__(
        self,
        folder: Path,
        scores: Sequence[ScoreLine],
        console: Console,
        last_step: int | None = None,
        trackers: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._path, self._last_step = folder, last_step
        self._names, self._config = trackers, config or {}
        self._panel, self._console = Panel(scores, console), console
        self._open = ExitStack()

    def __enter__(self) -> "RunReporter":
        with ExitStack() as opened:
            self._folder = opened.enter_context(closing(HeldFolder(self._path)))
            log = MetricsLog(self._path / "metrics.jsonl", self._last_step)
            self._log = opened.enter_context(closing(log))
            self._board = None
            if "tensorboard" in (self._names or ("tensorboard",)) and has_tensorboard():
                board = Board(self._path / "tensorboard", self._last_step)
                self._board = opened.enter_context(closing(board))
            self._trackers = [
                opened.enter_context(closing(TrackerThread(name, self._path, self._config)))
                for name in self._names
                if name in TRACKERS
            ]
            opened.enter_context(self._panel)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def report(self, record: Record, progress: float) -> None:
        """Write and show a training or validation record, with the lines of its `samples`."""
        self._log.write(record)
        self._write_board(record)
        for tracker in self._trackers:
            tracker.add(record)
        self._panel.show(record, progress)
        loss, baseline = record.get("loss"), record.get("unigram_loss", math.inf)
        if record["split"] == "valid" and record["step"] == 0 and loss and loss > baseline:
            self.say(
                f"warning: the model that the run begins with has a higher loss ({loss:.3f}) than "
                f"the unigram baseline ({baseline:.3f}), so it knows little of this text. Compare "
                "with a run that begins without it."
            )

    def say(self, line: str) -> None:
        """Show a line above the progress."""
        self._console.print(line)

    def advance(self, counts: Record, progress: float) -> None:
        """Show the progress between two records."""
        # Writing to open files of a removed folder raises no error, but the records are lost.
        if not self._folder.is_in_place():
            raise TrainingError(describe_lost_folder(self._folder.path))
        self._panel.advance(counts, progress)

    def _write_board(self, record: Record) -> None:
        if self._board is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "step":
                    self._board.add_scalar(f"{record['split']}/{name}", value, record["step"])
