"""Run folders that anybody may have written: one line and exit code 2, or a page that holds."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from maskwright.cli.main import main
from maskwright.report import charts
from maskwright.runs.evaluation_file import FORMAT, merge_earlier

pytestmark = pytest.mark.usefixtures("drawn_charts")
COUNTS = {"step": 10, "tokens": 100, "seconds": 1.0}
TRAIN = {"split": "train", **COUNTS, "loss": 7.5, "tokens_per_second": 100.0}
VALID = {"split": "valid", **COUNTS, "loss": 7.0, "masked_accuracy": 0.1, "unigram_loss": 7.2}
SCORE = {"name": "loss", "value": 1.0, "low": 0.9, "high": 1.1, "num_samples": 9, "baseline": None}
SUITE: dict[str, Any] = {"suite": "mlm", "data": {"name": "x"}, "settings": {}, "scores": [SCORE]}
DEEP = "[" * 100_000

# What stands in a line of metrics.jsonl, and the field that the message names.
BAD_RECORDS: list[tuple[object, str]] = [
    ("", "object"),
    ("[1]", "object"),
    ("{", "object"),
    (DEEP, "object"),
    ("\x00\x00", "object"),
    ({"split": "valid"}, "step"),
    ({key: VALID[key] for key in ("split", "step", "tokens")}, "seconds"),
    ({key: VALID[key] for key in ("step", "tokens", "seconds")}, "split"),
    ({**VALID, "split": "test"}, "split"),
    ({**VALID, "step": "10"}, "step"),
    ({**VALID, "step": -1}, "step"),
    ({**VALID, "step": True}, "step"),
    ({**VALID, "step": 10**400}, "step"),
    ({**VALID, "tokens": 2**63}, "tokens"),
    ({**VALID, "seconds": "now"}, "seconds"),
    ({**VALID, "seconds": float("nan")}, "seconds"),
    ({**VALID, "seconds": -1}, "seconds"),
    ({**VALID, "loss": "low"}, "loss"),
    ({**VALID, "loss": float("inf")}, "loss"),
    ({**VALID, "loss/\x1b[31m": "x"}, "loss/"),
    ({**VALID, "samples": "abc"}, "samples"),
    ({**VALID, "samples": [1]}, "samples"),
    ({**VALID, "final": "yes"}, "final"),
]
BAD_EVALUATIONS: list[tuple[object, str]] = [
    ("{", "evaluation.json"),
    (DEEP, "evaluation.json"),
    ({}, "suites"),
    ({"suites": {"suite": "mlm"}}, "suites"),
    ({"suites": ["mlm"]}, "suites[0]"),
    ({"suites": [{**SUITE, "suite": ["mlm"]}]}, "suites[0].suite"),
    ({"suites": [{**SUITE, "data": "x"}]}, "suites[0].data"),
    ({"suites": [SUITE, {**SUITE, "scores": {}}]}, "suites[1].scores"),
    ({"suites": [{**SUITE, "scores": [3]}]}, "scores[0]"),
    ({"suites": [{**SUITE, "scores": [{**SCORE, "name": 3}]}]}, "scores[0].name"),
    ({"suites": [{**SUITE, "scores": [{**SCORE, "value": "high"}]}]}, "scores[0].value"),
    ({"suites": [{**SUITE, "scores": [{**SCORE, "high": float("inf")}]}]}, "scores[0].high"),
]
NAMES = [
    "frequency_1e99999999/seen_mask_accuracy",
    "frequency_1e٣/seen_mask_accuracy",
    "frequency_1e/seen_mask_accuracy",
    "frequency_1ex",
    "blimp/",
    "blimp/$x^{$",
    "blimp/\ud800",
    "blimp/" + "x" * 100_000,
    "\x1b[31m<script>",
    "",
]


@pytest.fixture
def run(workplace: Path, tmp_path: Path) -> Path:
    """A run folder with nothing but what a report reads."""
    folder, small = tmp_path / "run", workplace / "runs" / "small"
    folder.mkdir()
    shutil.copy(small / "config.yaml", folder)
    (folder / "provenance.json").write_text("{}")
    write_records(folder, TRAIN, VALID)
    return folder


def write_records(run: Path, *records: object) -> None:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    (run / "metrics.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")


def write_evaluation(run: Path, *scores: object) -> None:
    suites = [{**SUITE, "suite": suite, "scores": scores} for suite in ("mlm", "blimp", "fill")]
    (run / "evaluation.json").write_text(json.dumps({"suites": suites}))


def refuse(command: str, run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line by which a command refuses a run."""
    assert main([command, str(run), *["--once"] * (command == "watch")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert len(line) < 1_200
    return line


@pytest.mark.parametrize(("record", "field"), BAD_RECORDS)
def test_a_line_that_is_no_record_is_named(
    run: Path, record: object, field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_records(run, TRAIN, record, VALID)
    for command in ("report", "watch"):
        line = refuse(command, run, capsys)
        assert line.startswith("InputError: ")
        assert "metrics.jsonl, line 2" in line
        assert field in line
    assert not (run / "report.html").exists()


@pytest.mark.parametrize(("content", "field"), BAD_EVALUATIONS)
def test_an_evaluation_that_is_none_is_named(
    run: Path, content: object, field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (run / "evaluation.json").write_text(text)
    line = refuse("report", run, capsys)
    assert "evaluation.json" in line
    assert field in line


def test_a_page_is_drawn_of_scores_of_any_name_and_size(run: Path) -> None:
    values = [0.5, 1e299, -1e299, None, 0.25]
    write_evaluation(run, *({**SCORE, "name": n, "value": v} for n in NAMES for v in values))
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "$x^{$" in page
    assert "<script>" not in page


def test_a_page_is_drawn_of_records_of_any_size(run: Path) -> None:
    huge = {"loss": 1e299, "masked_accuracy": -1e299, "unigram_loss": None, "loss/<b>$": 1e299}
    late = {"step": 2**62, "tokens": 2**62, "seconds": 9e11}
    slow = {"tokens_per_second": 1e-299, "startup_seconds": None, "grad_norm": 1e299}
    samples = ["✓ $x$ \ud800 <b>", "✗ " * 10_000, "\x1b[31m"]
    write_records(
        run,
        {**TRAIN, **late, **slow},
        {**TRAIN, **slow},
        {**VALID, **huge, **late, "samples": samples},
        {**VALID, "validation_seconds": None, "tokens": 0, "seconds": 0, "step": 0},
    )
    assert main(["report", str(run)]) == 0
    assert "<b>" not in (run / "report.html").read_text(encoding="utf-8")
    assert main(["watch", str(run), "--once"]) == 0


@pytest.mark.parametrize(
    "values",
    [
        {"corpus": {"fingerprint": [1]}, "cpu": {"a": [1]}, "num_parameters": "many"},
        {"prepared_data": "x\0y", "recipe": ["$"]},
        {"prepared_data": {"a": 3}, "started": {}},
        {"prepared_data": "x" * 200, "source": {"diff": 3}, "\ud800": "\ud800"},
        {
            "deep": json.loads("[" * 500 + "]" * 500),
            "a": json.loads('{"a":' * 400 + "1" + "}" * 400),
        },
        {"command": ["--name=/home/jane/x", 3, None], "asked": 3},
    ],
)
def test_provenance_may_hold_anything(
    run: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "render", lambda *arguments: "")  # has no part of it, and is slow
    (run / "provenance.json").write_text(json.dumps(values))
    assert main(["report", str(run)]) == 0
    assert "jane" not in (run / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("content", ["{", "[]", DEEP, "\ud800"])
def test_provenance_that_is_none_is_named(
    run: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "provenance.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    assert "provenance.json cannot be read" in refuse("report", run, capsys)


def test_files_that_are_none(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text("model: [")
    assert "is not valid YAML" in refuse("report", run, capsys)
    (run / "config.yaml").write_text(config)
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to("/dev/zero")
    assert "metrics.jsonl must be a file" in refuse("report", run, capsys)


def test_a_page_shows_no_folders_of_the_machine(run: Path) -> None:
    provenance = {
        "command": ["/home/jane/bin/maskwright", "pretrain", "../jane/x.txt", "--a=/home/jane/b"],
        "corpus": {"paths": ["/home/jane/x.txt"], "corpus": {"valid_text": ["jane/v.txt"]}},
        "prepared_data": "/home/jane/data/x",
        "source": {"revision": "abc", "diff": "+ jane\n+ secret\n"},
    }
    (run / "provenance.json").write_text(json.dumps(provenance))
    (run / "config.yaml").write_text("text: [/home/jane/x.txt]\nevaluate: {blimp: ~/jane/b}\n")
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "jane" not in page
    assert "x.txt" in page
    assert "2 lines" in page


@pytest.mark.parametrize("suite", [["mlm"], {}])
def test_an_evaluation_is_written_over_one_that_is_none(tmp_path: Path, suite: object) -> None:
    earlier = {**SUITE, "suite": suite, "data": {"fingerprint": "x"}}
    values = {"format": FORMAT, "model": {"sha256": "x"}, "suites": [earlier]}
    (tmp_path / "evaluation.json").write_text(json.dumps(values))
    new: Any = {**values, "suites": []}
    assert merge_earlier(tmp_path / "evaluation.json", new) == new
