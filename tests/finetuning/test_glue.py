"""GLUE's files in ``maskwright finetune`` and ``maskwright evaluate --suite glue``."""

import json
from pathlib import Path

from maskwright.finetuning.config import GLUE_TASKS
from maskwright.finetuning.glue import find_gaps, find_tasks
from maskwright.provenance import show_computation
from tests.command import Cli

FAST = ["--epochs", "2", "--learning_rate", "0.003", "--device", "cpu", "--beside", "off"]


def test_presets_know_their_files(tmp_path: Path):
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "in_domain_train.tsv").touch()
    assert list(find_tasks(tmp_path)) == []
    assert list(find_gaps(tmp_path)) == [("CoLA", ["in_domain_dev.tsv"])]
    (tmp_path / "CoLA" / "in_domain_dev.tsv").touch()
    [(name, train, valid)] = find_tasks(tmp_path)
    assert list(find_gaps(tmp_path)) == []
    assert (name, train.name, valid.name) == ("cola", "in_domain_train.tsv", "in_domain_dev.tsv")
    assert GLUE_TASKS["stsb"].find_layout(Path("mine.csv")).columns["label"] == 2
    assert GLUE_TASKS["stsb"].find_layout(Path("mine.tsv")).columns["label"] == "score"


def test_glue_is_one_table(workplace: Path, tmp_path: Path, cli: Cli):
    (tmp_path / "RTE").mkdir()
    lines = ["index\tsentence1\tsentence2\tlabel"]
    for number in range(60):
        label = ("entailment", "not_entailment")[number % 2]
        lines.append(f"{number}\tThe cat {number} eats.\tIt {label} eats.\t{label}")
    train = tmp_path / "RTE" / "train.tsv"
    train.write_text("\n".join([*lines, "60\tThe cat", "eats"]) + "\n")
    (tmp_path / "RTE" / "dev.tsv").write_text("\n".join(lines[:9]) + "\n")
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "train.tsv").touch()
    arguments = ["evaluate", str(workplace / "runs" / "small"), "--suite", "glue", "--fast"]
    out = tmp_path / "glue.json"
    flags = ("--data", tmp_path, "--device", "cpu", "--out", out)
    code, shown, said = cli.run(*arguments, *flags)
    assert code == 0
    found = json.loads(out.read_text())["rte"]["computation"]
    gap = "CoLA is skipped: it lacks dev.tsv"
    short = f"2 rows of {train} skipped: fewer columns than the task needs"
    reading = "RTE: reading examples, scoring baselines"
    gap_line, reading_line, plan, repeated, skipped = said.splitlines()
    assert (gap_line, reading_line) == (gap, reading)
    where = show_computation(found)
    assert plan == f"  54 examples, epochs at most 1, learning rate 0.001, on {where}"
    assert repeated.startswith("  8 of 8 test examples are also in training")
    assert skipped == f"  {short}"
    row = shown.splitlines()[1].split()
    found = json.loads(out.read_text())["rte"]
    assert found["skipped_rows"] == {str(train): 2}
    # What decided is a tenth of the training examples; what is shown is about those of dev.tsv.
    assert found["train_examples"] + found["valid_examples"] == 60
    assert found["test"]["examples"] == 8
    assert row[:3] == ["RTE", "accuracy", "0.5000"]
    assert f"{found['test']['scores']['accuracy']['mean']:.4f}" == row[4]
    assert "needs one of CoLA, SST-2" in cli.refuse(*arguments, "--data", workplace)
    assert "the suite glue needs --data DIR" in cli.refuse(*arguments)


def test_short_rows_of_a_preset_are_skipped_and_shown(workplace: Path, tmp_path: Path, cli: Cli):
    """As some of QQP's are."""
    lines = ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"]
    lines += [f"{n}\t1\t2\tThe cat {n}?\tThe bird {n}?\t{n % 2}" for n in range(40)]
    lines[20] = "19\t1\t2\tThe cat"
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    arguments = ["finetune", str(workplace / "runs" / "small"), "--preset", "qqp", *FAST]
    arguments += ["--train", str(tmp_path / "train.tsv"), "--out", str(tmp_path / "run")]
    assert "train.tsv:21 has 4 columns" in cli.refuse(*arguments, "--columns", "label=5")
    shown = f"1 row of {tmp_path / 'train.tsv'} skipped: fewer columns than the task needs\n"
    assert shown in cli(*arguments)
    assert "skipped_rows" in json.loads((tmp_path / "run" / "results.json").read_text())
