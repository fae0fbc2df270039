import io
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from maskwright import console
from maskwright.console import Console
from maskwright.errors import TrainingError
from maskwright.logs import Record
from maskwright.objectives.mlm import MaskedTokens
from maskwright.train import reporting
from maskwright.train.reporting import RunReporter, color_sample, describe_record

SCORES = MaskedTokens.scores
HERE = {"step": 1200, "tokens": 2_000_000}
RATES = {"learning_rate": 0.003, "tokens_per_second": 3456.7}
TRAIN: Record = {
    "split": "train", **HERE, "seconds": 60.0, "loss": 5.25, "masked_accuracy": 0.21, **RATES
}  # fmt: skip
VALID: Record = {
    "split": "valid", **HERE, "seconds": 61.0, "loss": 5.5, "masked_accuracy": 0.3,
    "seen_mask_accuracy": 0.2, "unigram_accuracy": 0.05,
    "samples": ["✓ a [MASK] cat  →  black 40%"],
}  # fmt: skip


@pytest.fixture
def no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "has_tensorboard", lambda: False)


def run_report(folder: Path, records: list[Record], **console: Any) -> str:
    stream = io.StringIO()
    with RunReporter(folder, SCORES, Console(file=stream, width=120, **console)) as reporter:
        for record in records:
            reporter.report(record, 0.25)
    return stream.getvalue()


def test_a_record_is_one_line_of_words() -> None:
    assert describe_record(TRAIN, SCORES) == (
        "step 1,200  2,000,000 tokens  loss 5.250  3,457 tokens/s"
    )
    assert describe_record(VALID, SCORES) == (
        "step 1,200  2,000,000 tokens  validation loss 5.500  accuracy on [MASK] 0.200 "
        "(unigram baseline 0.050)"
    )


def test_right_guesses_are_green_and_wrong_ones_red() -> None:
    def colors(line: str) -> dict[str, str]:
        text = color_sample(line)
        assert text.plain == line
        return {line[span.start : span.end]: str(span.style).split()[-1] for span in text.spans}

    assert colors("✓ a [MASK] cat  →  black 40%  (was: black)") == {"✓": "green"}
    assert colors("✗ a [MASK] cat  →  black 40%  (was: white)") == {"✗": "red"}
    assert colors("We ⟨a⟩re⟨ ⟩acc⟨e≠o⟩un") == {"⟨a⟩": "green", "⟨ ⟩": "green", "⟨e≠o⟩": "red"}


@pytest.mark.usefixtures("no_board")
@pytest.mark.parametrize(
    ("record", "warns"),
    [
        ({**VALID, "step": 0, "unigram_loss": 5.4}, True),
        ({**VALID, "step": 0, "unigram_loss": 5.6}, False),
        ({**VALID, "step": 0}, False),
        ({**VALID, "unigram_loss": 5.4}, False),
        ({**TRAIN, "step": 0, "unigram_loss": 5.0}, False),
    ],
)
def test_a_beginning_that_knows_nothing_of_the_text_is_a_warning(
    record: Record, warns: bool, tmp_path: Path
) -> None:
    shown = run_report(tmp_path, [record])
    assert ("warning:" in shown) == warns
    assert ("5.400" in shown.partition("warning:")[2]) == warns


@pytest.mark.usefixtures("no_board")
def test_away_from_a_terminal_there_are_plain_lines(tmp_path: Path) -> None:
    shown = run_report(tmp_path, [TRAIN, VALID])
    assert shown.splitlines() == [
        " 25%  " + describe_record(TRAIN, SCORES),
        " 25%  " + describe_record(VALID, SCORES),
        "      ✓ a [MASK] cat  →  black 40%",  # brackets are text and no markup
    ]


@pytest.mark.usefixtures("no_board")
def test_of_many_records_the_first_and_the_last_are_plain_lines(tmp_path: Path) -> None:
    """Those between would fill a log: they are for metrics.jsonl."""
    records = [{**TRAIN, "step": step} for step in range(1, 100)]
    shown = run_report(tmp_path, [*records[:50], VALID, *records[50:]]).splitlines()
    kept = [records[0], VALID, records[-1]]
    assert [line for line in shown if "step" in line] == [
        f" 25%  {describe_record(r, SCORES)}" for r in kept
    ]


@pytest.mark.usefixtures("no_board")
def test_a_record_says_more_than_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    later = {**TRAIN, "step": 1220}
    with RunReporter(tmp_path, SCORES, Console(file=stream, width=120)) as reporter:
        for record in (TRAIN, later):
            reporter.report(record, 0.25)
        monkeypatch.setattr(console, "EVERY_SECONDS", 0)
        for step in (1221, 1222):
            reporter.advance({**TRAIN, "step": step}, 0.25)
    assert stream.getvalue().splitlines() == [
        " 25%  " + describe_record(TRAIN, SCORES),
        " 25%  " + describe_record(later, SCORES),
        " 25%  step 1,222  2,000,000 tokens",
    ]


@pytest.mark.usefixtures("no_board")
def test_steps_without_a_record_are_heard_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of a large model may take minutes, and so may a validation."""

    def run(**console: Any) -> str:
        stream = io.StringIO()
        with RunReporter(tmp_path, SCORES, Console(file=stream, width=120, **console)) as reporter:
            reporter.advance({"split": "train", "step": 3, "tokens": 6000, "seconds": 90}, 0.5)
            reporter.advance({"split": "valid", "step": 4, "tokens": 8000, "seconds": 99}, 0.6)
        return stream.getvalue()

    assert run() == ""
    assert "0:36 left" in run(force_terminal=True, color_system=None)
    monkeypatch.setattr(console, "EVERY_SECONDS", 0)
    assert run().splitlines() == [
        " 50%  step 3  6,000 tokens",
        " 60%  step 4  8,000 tokens  validating",
    ]


@pytest.mark.usefixtures("no_board")
def test_on_a_terminal_there_is_a_panel(tmp_path: Path) -> None:
    shown = run_report(tmp_path, [TRAIN, VALID], force_terminal=True, color_system=None)
    assert "validation loss 5.500" in shown
    assert "[MASK]" in shown
    assert "1:01 ? left" in shown  # the pace is not known yet


@pytest.mark.usefixtures("no_board")
def test_a_resumed_run_continues_the_file(tmp_path: Path) -> None:
    run_report(tmp_path, [{**TRAIN, "step": step} for step in (1, 2, 3)])
    with RunReporter(tmp_path, SCORES, Console(file=io.StringIO()), last_step=2) as reporter:
        reporter.report({**TRAIN, "step": 3, "loss": 1.0}, 0.5)
    lines = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [(r["step"], r["loss"]) for r in map(json.loads, lines)] == [
        (1, 5.25),
        (2, 5.25),
        (3, 1.0),
    ]


def test_tensorboard_gets_the_numbers(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run_report(tmp_path, [TRAIN, VALID])
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {"train/loss", "valid/loss", "valid/unigram_accuracy"} <= set(events.Tags()["scalars"])
    (point,) = events.Scalars("valid/loss")
    assert (point.step, point.value) == (1200, 5.5)


def test_a_notebook_shows_the_panel_in_its_cell(
    tmp_path: Path, no_board: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    handle = SimpleNamespace(update=drawn.append)

    def display(drawing: str, display_id: bool) -> SimpleNamespace:
        assert display_id
        drawn.append(drawing)
        return handle

    module = ModuleType("IPython.display")
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(module, "display", display, raising=False)
    monkeypatch.setattr(module, "HTML", str, raising=False)
    monkeypatch.setattr(reporting, "_CELL_SECONDS", 0)
    lines = run_report(tmp_path, [TRAIN, VALID], force_jupyter=True)
    assert lines == ""
    assert len(drawn) == 3  # one place, drawn for each record and at the end
    assert "loss 5.250" in drawn[0]
    assert "accuracy on [MASK] 0.200" in drawn[-1]
    assert "25%" in drawn[-1]
    assert "black 40%" in drawn[-1]
    assert drawn[-1].startswith("<pre>")


@pytest.mark.parametrize("opened", [None, "HeldFolder", "MetricsLog", "Board"])
def test_a_folder_that_is_moved_while_it_is_opened_is_not_made_again(
    opened: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    run, moved = tmp_path / "run", tmp_path / "moved"
    run.mkdir()
    if opened is None:
        run.rename(moved)
    else:
        make = getattr(reporting, opened)

        def make_and_move(*arguments: Any) -> Any:
            found = make(*arguments)
            run.rename(moved)
            return found

        monkeypatch.setattr(reporting, opened, make_and_move)
    with (
        pytest.raises(TrainingError, match="was removed, renamed or replaced"),
        RunReporter(run, SCORES, Console(file=io.StringIO())) as reporter,
    ):
        reporter.advance({"split": "train", "step": 3, "tokens": 6000, "seconds": 90}, 0.5)
    assert [path.name for path in tmp_path.iterdir()] == ["moved"]
