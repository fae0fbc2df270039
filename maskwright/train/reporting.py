"""Where the records of a run go: metrics.jsonl, TensorBoard, and the terminal."""

from pathlib import Path
from types import TracebackType

from maskwright.console import Console
from maskwright.errors import TrainingError
from maskwright.files import HeldFolder
from maskwright.logs import MetricsLog, Record
from maskwright.train.board import Board, has_tensorboard
from maskwright.train.checkpoint import describe_lost_folder
from maskwright.train.panel import Panel


class SilentReporter:
    """Reports nothing: for ranks that are not the first."""

    def report(self, record: Record, progress: float) -> None:
        pass

    def advance(self, counts: Record, progress: float) -> None:
        pass


class RunReporter:
    """Writes every record of a run and shows it.

    Args:
        folder: the run directory.
        console: where to show, see `Panel`.
        last_step: of the checkpoint that the run goes on from.

    Raises:
        TrainingError: from `advance`, when the folder is not in its place any more.
    """

    def __init__(self, folder: Path, console: Console, last_step: int | None = None) -> None:
        self._folder = HeldFolder(folder)
        self._log = MetricsLog(folder / "metrics.jsonl", last_step)
        self._board = Board(folder / "tensorboard", last_step) if has_tensorboard() else None
        self._panel = Panel(console)

    def __enter__(self) -> "RunReporter":
        self._panel.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._panel.__exit__(kind, error, traceback)
        self._log.close()
        self._folder.close()
        if self._board is not None:
            self._board.close()

    def report(self, record: Record, progress: float) -> None:
        """Takes a training or validation record; `samples` in it are lines to show."""
        self._log.write(record)
        self._write_board(record)
        self._panel.show(record, progress)

    def advance(self, counts: Record, progress: float) -> None:
        """Shows how far the run is, between two records."""
        # Open files of a removed folder can be written to without an error, and nobody sees it.
        if not self._folder.is_in_place():
            raise TrainingError(describe_lost_folder(self._folder.path))
        self._panel.advance(counts, progress)

    def _write_board(self, record: Record) -> None:
        if self._board is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "step":
                    self._board.add_scalar(f"{record['split']}/{name}", value, record["step"])
