"""A live panel of a run in the terminal, or plain lines if the output is not a terminal."""

import importlib
import io
import math
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from maskwright.console import Console
from maskwright.logs import Record, of_sources, split_sample
from maskwright.objectives.objective import ScoreLine
from maskwright.progress import Pulse


def describe_record(record: Record, scores: Sequence[ScoreLine]) -> str:
    """Return a record as one plain line; scores that it lacks are left out.

    Args:
        scores: the scores of the objective; the first is also shown for each source of a mixture.
    """
    parts = [f"step {record['step']:,}", f"{record['tokens']:,} tokens"]
    is_valid = record["split"] == "valid"
    for line in scores:
        value = record.get(line.name)
        if line.headline and value is not None and not math.isnan(value):
            baseline = record.get(line.baseline)
            beside = "" if baseline is None else f" ({line.baseline_name} {baseline:.3f})"
            prefix = "validation " * (is_valid and line is scores[0])
            parts.append(f"{prefix}{line.headline} {value:.3f}{beside}")
    for line in scores[:1]:
        by_source = of_sources(record, line.name).items()
        parts += [f"{line.headline} on {name} {value:.3f}" for name, value in by_source]
    speed = record.get("tokens_per_second")
    if not is_valid and speed is not None:
        parts.append(f"{speed:,.0f} tokens/s")
    return "  ".join(parts)


_SECONDS = 0.5  # between two drawings in a notebook
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
        if time.monotonic() - self._last < _SECONDS and not is_last:
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
