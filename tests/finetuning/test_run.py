"""From a table to a run: which columns are taken, and what is said about them."""

import shlex
from pathlib import Path

import pytest

from maskwright.cli.main import main

FAST = ["--epochs", "0.5", "--learning_rate", "0.003", "--device", "cpu"]


def write_notes(path: Path, header: str, row: str) -> Path:
    rows = (
        row.format(n, f"The printer {n} does not print again", ("it", "sales")[n % 2], n % 3)
        for n in range(80)
    )
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("name", "header", "row", "columns"),
    [
        ("a.csv", "note,department", "{1},{2}", ()),
        ("a.csv", "id;department;note", "{0};{2};{1}", ()),
        ("a.jsonl", "", '{{"department": "{2}", "note": "{1}"}}', ()),
        ("a.csv", "note,department,floor", "{1},{2},{3}", ("text=note", "label=department")),
        ("a.csv", "note,department,floor", "{1},{2},{3}", ("text=note,label=department",)),
    ],
)
def test_columns_of_any_names_are_understood(
    workplace: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    header: str,
    row: str,
    columns: tuple[str, ...],
):
    table = write_notes(tmp_path / name, header, row)
    command = ["finetune", str(workplace / "runs" / "small"), "--task", "classification", *FAST]
    command += ["--train", str(table), "--out", str(tmp_path / "run")]
    assert main([*command, *(("--columns", *columns) if columns else ())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "columns: sentence1 = note, label = department"
    assert main(["predict", str(tmp_path / "run"), str(table), "--columns", "text=note"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 80


@pytest.mark.parametrize(
    ("header", "row", "given", "named"),
    [
        ("note,department,floor", "{1},{2},{3}", [], "text=note label=department"),
        ("note,department,floor", "{1},{2},{3}", ["text=note"], "text=note label=department"),
        ("note,department", "{1},{2}", ["text=body", "label=department"], ""),
        ("note,department", "{1},{2}", ["text=0", "label=7"], ""),
        ("text,title,department", "{1},{1},{2}", ["label=department"], "text=text"),
        ("text,title,department", "{1},{1},{2}", [], "text=text label=department"),
        ("text,title,label,class", "{1},{1},{2},{2}", [], "text=text label=label"),
        ("text,text,class", "{1},{1},{2}", [], "text=0 label=class"),
        ("The printer does not print at all,it", "{1},{2}", [], "text=0 label=1"),
    ],
)
def test_what_to_type_is_said_once_and_works(
    workplace: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    header: str,
    row: str,
    given: list[str],
    named: str,
):
    table = write_notes(tmp_path / "my notes.csv", header, row)
    command = ["finetune", str(workplace / "runs" / "small"), "--task", "classification", *FAST]
    command += ["--train", str(table), "--columns", *given] if given else ["--train", str(table)]
    assert main([*command, "--out", str(tmp_path / "run")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""  # no line about columns that the table lacks
    assert captured.err.count("--columns") == captured.err.count("\n") == 1
    _, command_name, whole = captured.err.partition("maskwright ")
    assert command_name
    assert named in whole
    assert main(shlex.split(whole)) == 0
    assert capsys.readouterr().out.startswith("columns: ")


def test_a_file_with_other_columns_than_the_training_file_is_named(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    table = write_notes(tmp_path / "a.csv", "note,department", "{1},{2}")
    other = write_notes(tmp_path / "b.csv", "note,folder", "{1},{2}")
    command = ["finetune", str(workplace / "runs" / "small"), "--task", "classification", *FAST]
    command += ["--train", str(table), "--test", str(other), "--out", str(tmp_path / "run")]
    assert main(command) == 2
    captured = capsys.readouterr()
    assert "b.csv has no column department for label: it has note, folder" in captured.err
    assert captured.out + captured.err.partition("\n")[2] == ""
