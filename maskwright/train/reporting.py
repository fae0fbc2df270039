"""Reports the records of a run: to metrics.jsonl, TensorBoard, trackers and the terminal.

TensorBoard's files are written directly: torch's own writer thread dies on a full disk. Trackers
(Weights & Biases, MLflow, Trackio) each work in a thread of their own, so that a slow network or a
failure never delays or stops training: what a tracker cannot take is lost to it, and one line says
so. A resumed run continues the run of the tracker, by the id in ``trackers/``.
"""

import importlib
import importlib.util
import io
import math
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from maskwright.console import Console, Pulse, tell
from maskwright.errors import TrainingError
from maskwright.extras import check_extra, import_extra
from maskwright.files import HeldFolder, naming_file, write_text
from maskwright.formatting import show_score
from maskwright.logs import MetricsLog, Record, of_sources, split_sample
from maskwright.objectives.scores import ScoreLine
from maskwright.train.checkpoint import describe_lost_folder
from maskwright.train.trainer import Reporter


def describe_record(record: Record, scores: Sequence[ScoreLine]) -> str:
    """Return a record as one plain line; scores that it lacks are left out.

    Args:
        scores: the scores of the objective; the first is also shown for each source of a mixture.
    """
    parts = [f"step {record['step']:,}", f"{record['tokens']:,} tokens"]
    is_valid = record["split"] == "valid"
    for line in scores:
        value = record.get(line.name)
        if line.headline and value is not None and (is_valid or not math.isnan(value)):
            baseline = record.get(line.baseline)
            beside = (
                "" if baseline is None else f" ({line.baseline_name} {show_score(baseline, 3)})"
            )
            prefix = "validation " * (is_valid and line is scores[0])
            parts.append(f"{prefix}{line.headline} {show_score(value, 3)}{beside}")
    for line in scores[:1]:
        by_source = of_sources(record, line.name).items()
        parts += [f"{line.headline} on {name} {show_score(value, 3)}" for name, value in by_source]
    speed = record.get("tokens_per_second")
    if not is_valid and speed is not None:
        parts.append(f"{speed:,.0f} tokens/s")
    return "  ".join(parts)


_CELL_SECONDS = 0.5  # between two drawings in a notebook
_COLORS = {"right": "not dim green", "wrong": "not dim red", "plain": ""}


def color_sample(line: str) -> Text:
    """Return a sample with correct predictions in green and wrong ones in red."""
    parts = ((part, _COLORS[kind]) for kind, part in split_sample(line))
    return Text.assemble(*parts, style="dim")


class Cell:
    """An output of a notebook cell that is updated in place.

    rich's Live shows nothing in a notebook without ipywidgets; IPython is always installed there.

    Args:
        width: characters in a line.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._handle: Any = None
        self._last = -math.inf

    def show(self, drawing: RenderableType, *, is_last: bool = False) -> None:
        """Draw, unless the last drawing is less than half a second old and others follow."""
        if time.monotonic() - self._last < _CELL_SECONDS and not is_last:
            return
        self._last = time.monotonic()
        console = Console(record=True, file=io.StringIO(), width=self._width, force_jupyter=False)
        console.print(drawing)
        html = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
        notebook = importlib.import_module("IPython.display")
        if self._handle is None:
            self._handle = notebook.display(notebook.HTML(html), display_id=True)
        else:
            self._handle.update(notebook.HTML(html))


class Panel:
    """A display of a run's records as they arrive.

    Args:
        scores: the scores to show; see `Objective.scores`.
        console: if it is a terminal or a notebook, a live panel (rich) shows progress, the last
            scores and sample predictions. Otherwise plain lines show every validation, the first
            and the last training record, and about one record every half minute in between.
    """

    def __init__(self, scores: Sequence[ScoreLine], console: Console) -> None:
        self._scores, self._console = scores, console
        self._pulse = Pulse(lambda line: console.print(line, highlight=False, soft_wrap=True))
        self._unsaid: str | None = None
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[elapsed]}"),
            TextColumn("{task.fields[left]} left"),
            console=console,
        )
        self._task = self._bar.add_task("training", total=1.0, elapsed="0:00", left="?")
        self._latest: dict[str, Record] = {}
        self._start: tuple[float, float] | None = None
        self._samples: list[str] = []
        self._is_live = console.is_terminal or console.is_jupyter
        self._cell = Cell(console.width) if console.is_jupyter else None
        self._live = Live(self.draw(), console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> "Panel":
        if self._is_live and self._cell is None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()
        if self._cell is not None:
            self._cell.show(self.draw(), is_last=True)
        if self._unsaid is not None:
            self._pulse.say(self._unsaid)

    def advance(self, counts: Record, progress: float) -> None:
        """Show the progress between two records; without a panel only if a line is due.

        Args:
            counts: split, step, tokens and seconds.
        """
        if self._is_live:
            self._move_bar(counts, progress)
            if self._cell is not None:
                self._cell.show(self.draw())
        elif self._pulse.is_due:
            doing = "  validating" * (counts["split"] == "valid")
            where = f"{progress:4.0%}  step {counts['step']:,}  {counts['tokens']:,} tokens{doing}"
            self._pulse.say(self._unsaid or where)
            self._unsaid = None

    def show(self, record: Record, progress: float) -> None:
        """Show a training or validation record, with the lines of its `samples`."""
        is_first = record["split"] not in self._latest
        self._latest[record["split"]] = record
        self._samples = record.get("samples", self._samples)
        if self._is_live:
            self._move_bar(record, progress)
            if self._cell is not None:
                self._cell.show(self.draw())
            else:
                self._live.update(self.draw())
        elif not record.get("final"):  # the caller shows the final scores
            self._say(f"{progress:4.0%}  {describe_record(record, self._scores)}", record, is_first)

    def _move_bar(self, counts: Record, progress: float) -> None:
        seconds, left = counts["seconds"], "?"
        if self._start is None and counts["split"] == "train":
            self._start = seconds, progress
        # The pace since the first step that this panel shows: compiling comes before it.
        if self._start is not None and progress > self._start[1]:
            start, first = self._start
            left = _duration((seconds - start) * (1 - progress) / (progress - first))
        elapsed = _duration(seconds)
        self._bar.update(self._task, completed=progress, elapsed=elapsed, left=left)

    def _say(self, line: str, record: Record, is_first: bool) -> None:
        if record["split"] == "train" and not is_first and not self._pulse.is_due:
            self._unsaid = line
            return
        self._unsaid = None
        self._pulse.say(line)
        for sample in record.get("samples", [])[:1]:  # all are shown at the end
            self._console.print(Text("      ").append_text(color_sample(sample)), soft_wrap=True)

    def draw(self) -> Group:
        """Return the latest records and samples, and the progress bar."""
        table = Table.grid(padding=(0, 2))
        for record in self._latest.values():
            table.add_row(describe_record(record, self._scores))
        for line in self._samples:
            table.add_row(color_sample(line))
        return Group(table, self._bar)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


FOLDER_NAME = "trackers"
PROJECT = "maskwright"  # unless the tracker's own variable names another
_MAX_WAITING = 10_000  # records
# To send the last ones when a run ends. MLflow takes half a minute to create a database on a busy
# machine.
_MAX_CLOSE_SECONDS = 60.0

Scores = Mapping[str, float]


def find_scores(record: Record) -> Scores:
    """Return the numbers of a record by their names on a board, such as ``train/loss``."""
    return {
        f"{record['split']}/{name}": float(value)
        for name, value in record.items()
        if isinstance(value, int | float) and name != "step"
    }


class WandbTracker:
    """A run of Weights & Biases; WANDB_MODE=offline needs no network."""

    def __init__(self, folder: Path, config: Mapping[str, Any], run_id: str | None) -> None:
        wandb = import_extra("wandb", "wandb", "train.trackers = wandb")
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        where = {"project": project, "name": folder.name, "dir": str(folder)}
        # By default the library replaces sys.stdout.write, which the run itself calls.
        quiet = wandb.Settings(console="off")
        run = {"config": dict(config), "id": run_id, "resume": "allow", "settings": quiet}
        self._run = wandb.init(**where, **run)
        self.id: str = self._run.id

    def log(self, scores: Scores, step: int) -> None:
        self._run.log(dict(scores), step=step)

    def close(self) -> None:
        self._run.finish()


class TrackioTracker(WandbTracker):
    """A run of Trackio, in its local database unless TRACKIO_SPACE_ID names a Space.

    Its runs have the methods of those of Weights & Biases.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], run_id: str | None) -> None:
        trackio = import_extra("trackio", "trackio", "train.trackers = trackio")
        self.id = run_id or f"{folder.name}-{time.time_ns() // 1_000_000:x}"
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        self._run = trackio.init(
            project, name=self.id, config=dict(config), resume="allow", embed=False
        )


class MlflowTracker:
    """A run of MLflow, where MLFLOW_TRACKING_URI says."""

    def __init__(self, folder: Path, config: Mapping[str, Any], run_id: str | None) -> None:
        self._mlflow = import_extra("mlflow", "mlflow", "train.trackers = mlflow")
        self._client = self._mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        if run_id is None:
            run_id = str(self._client.create_run(experiment, run_name=folder.name).info.run_id)
            self._client.log_dict(run_id, dict(config), "config.yaml")
        else:
            self._client.update_run(run_id, status="RUNNING")
        self.id = run_id

    def log(self, scores: Scores, step: int) -> None:
        now = int(1000 * time.time())
        metric = self._mlflow.entities.Metric
        metrics = [metric(name, value, now, step) for name, value in scores.items()]
        self._client.log_batch(self.id, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self.id)


# Any method of theirs may raise anything.
TRACKERS = {"mlflow": MlflowTracker, "trackio": TrackioTracker, "wandb": WandbTracker}


def check_trackers(names: Iterable[str]) -> None:
    """Raise MissingPackageError unless the packages of these trackers are installed."""
    for name in names:
        check_extra(name, name, f"train.trackers = {name}")


class TrackerThread:
    """Sends records to a tracker, in a thread of its own.

    Args:
        name: one of `TRACKERS`.
        folder: the run directory.
        config: of the run, as plain values.
    """

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        self._name, self._folder, self._config = name, folder, config
        self._waiting: Queue[tuple[Scores, int] | None] = Queue()
        self._has_lost = False
        self._thread = Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def add(self, record: Record) -> None:
        """Take a record; return at once."""
        if self._waiting.qsize() < _MAX_WAITING:
            self._waiting.put_nowait((find_scores(record), int(record["step"])))
        elif not self._has_lost:  # a network that has been down for hours
            self._has_lost = True
            tell(f"{self._name} does not keep up: it will lack records, metrics.jsonl has them")

    def close(self) -> None:
        """Wait until all is sent, for a minute at most."""
        self._waiting.put_nowait(None)
        self._thread.join(_MAX_CLOSE_SECONDS)
        if self._thread.is_alive():
            tell(f"{self._name} does not answer: it lacks the last records, metrics.jsonl has them")

    def _work(self) -> None:
        try:
            tracker = self._open()
            while (item := self._waiting.get()) is not None:
                tracker.log(*item)
            tracker.close()
        except (Exception, SystemExit) as error:  # whatever a tracker does, the run continues
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            tell(f"{self._name} gets no more records of this run: {reason[0]}")

    def _open(self) -> MlflowTracker | WandbTracker:
        path = self._folder / FOLDER_NAME / self._name
        run_id = path.read_text(encoding="utf-8") if path.exists() else None
        tracker = TRACKERS[self._name](self._folder, self._config, run_id)
        path.parent.mkdir(exist_ok=True)
        write_text(path, tracker.id)
        return tracker


def has_tensorboard() -> bool:
    """Return True if the extra ``tensorboard`` is installed, which `Board` needs."""
    return importlib.util.find_spec("tensorboard") is not None


class Board:
    """A new TensorBoard event file.

    Args:
        folder: the folder of all event files; created if it does not exist, in one that does.
        last_step: TensorBoard drops the points of later steps in earlier files.

    Raises:
        OSError: from every method; names the file.
    """

    def __init__(self, folder: Path, last_step: int | None = None) -> None:
        self._events = importlib.import_module("tensorboard.compat.proto.event_pb2")
        self._summaries = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        records = importlib.import_module("tensorboard.summary.writer.record_writer")
        folder.mkdir(exist_ok=True)  # a run directory that was moved is not made again
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._path = folder / name
        self._writer = records.RecordWriter(self._path.open("wb"))
        self._write(file_version="brain.Event:2")
        if last_step is not None:
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._write(session_log=start, step=last_step + 1)

    def add(self, record: Record) -> None:
        """Add a point to the curve of each number of a record."""
        summary = self._summaries.Summary
        points = [summary.Value(tag=n, simple_value=v) for n, v in find_scores(record).items()]
        self._write(summary=summary(value=points), step=record["step"])

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
        TrainingError: from `advance`, or at the beginning of the context, if the folder was
            removed, renamed or replaced.
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
        try:
            self._open_all()
        except FileNotFoundError:
            raise TrainingError(describe_lost_folder(self._path)) from None
        return self

    def _open_all(self) -> None:
        with ExitStack() as opened:
            self._folder = opened.enter_context(closing(HeldFolder(self._path)))
            log = MetricsLog(self._path / "metrics.jsonl", self._last_step)
            self._log = opened.enter_context(closing(log))
            self._boards: list[Board | TrackerThread] = [
                opened.enter_context(closing(TrackerThread(name, self._path, self._config)))
                for name in self._names
                if name in TRACKERS
            ]
            if "tensorboard" in (self._names or ("tensorboard",)) and has_tensorboard():
                board = Board(self._path / "tensorboard", self._last_step)
                self._boards.append(opened.enter_context(closing(board)))
            opened.enter_context(self._panel)
            self._open = opened.pop_all()

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def report(self, record: Record, progress: float) -> None:
        """Write and show a training or validation record, with the lines of its `samples`."""
        self._log.write(record)
        for board in self._boards:
            board.add(record)
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
