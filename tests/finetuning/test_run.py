"""From a table to a run, which columns are taken, what is said about them, and folds."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any

import pytest

from maskwright.cli.main import main
from maskwright.console import Pulse
from maskwright.corpus.table_files import TableRow
from maskwright.errors import ConfigError
from maskwright.finetuning import run as run_module
from maskwright.finetuning.config import Request, TaskFiles
from maskwright.finetuning.fit import train_seeds
from maskwright.finetuning.run import cross_validate
from maskwright.finetuning.split import cut_folds
from maskwright.finetuning.task import TaskData
from maskwright.model_folder.folder import save_model
from tests.command import Cli
from tests.finetuning.helpers import TOKENIZER, make_loaded, write_nouns, write_tags
from tests.finetuning.test_task import CONFIG, CPU, LABELS

FAST = ["--epochs", "0.5", "--learning_rate", "0.003", "--device", "cpu", "--beside", "off"]


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
    cli: Cli,
    name: str,
    header: str,
    row: str,
    columns: tuple[str, ...],
):
    table = write_notes(tmp_path / name, header, row)
    command = ["finetune", str(workplace / "runs" / "small"), "--task", "classification", *FAST]
    command += ["--train", str(table), "--out", str(tmp_path / "run")]
    lines = cli(*command, *(("--columns", *columns) if columns else ())).splitlines()
    assert lines[0] == "columns: sentence1 = note, label = department"
    assert len(cli("predict", tmp_path / "run", table, "--columns", "text=note").splitlines()) == 80


@pytest.mark.parametrize(
    ("header", "row", "given", "message"),
    [
        ("note,department,floor", "{1},{2},{3}", [], "has note, department, floor. "),
        ("note,department", "{1},{2}", ["text=body", "label=department"], "body for sentence1"),
        ("note,department", "{1},{2}", ["text=0", "label=7"], "column 7 for label: it has posit"),
        ("text,title,class", "{1},{1},{2}", [], "sentence1: text, title. Choose one"),
        ("text,text,class", "{1},{1},{2}", [], "Choose one: --columns sentence1=0"),
        ("The printer does not print at all,it", "{1},{2}", [], "sentence1=… label=…"),
    ],
)
def test_columns_that_are_not_clear_are_one_line(
    workplace: Path, tmp_path: Path, cli: Cli, header: str, row: str, given: list[str], message: str
):
    table = write_notes(tmp_path / "my notes.csv", header, row)
    command = ["finetune", str(workplace / "runs" / "small"), "--task", "classification", *FAST]
    command += ["--train", str(table), "--columns", *given] if given else ["--train", str(table)]
    code, out, err = cli.run(*command, "--out", tmp_path / "run")
    assert (code, out) == (2, "")  # no line about columns that the table lacks
    assert err.count("--columns") == err.count("\n") == 1
    assert message in err


def test_a_file_with_other_columns_than_the_training_file_is_named(
    workplace: Path, tmp_path: Path, cli: Cli
):
    table = write_notes(tmp_path / "a.csv", "note,department", "{1},{2}")
    other = write_notes(tmp_path / "b.csv", "note,folder", "{1},{2}")
    command = ["finetune", str(workplace / "runs" / "small"), "--task", "classification", *FAST]
    command += ["--train", str(table), "--test", str(other), "--out", str(tmp_path / "run")]
    code, out, err = cli.run(*command)
    assert "b.csv has no column department for label: it has note, folder" in err
    assert (code, out, err.count("\n")) == (2, "", 1)


def make_rows(labels: list[str]) -> list[TableRow]:
    texts = [f"text {number // 2} {label}" for number, label in enumerate(labels)]  # some twice
    pairs = zip(texts, labels, strict=True)
    return [TableRow("", {"sentence1": text, "label": label}) for text, label in pairs]


def cut(rows: list[TableRow], count: int) -> list[list[int]]:
    return cut_folds(rows, [[row.values["label"]] for row in rows], count)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_folds_have_equal_shares_of_all_labels(count: int):
    rows = make_rows(["a", "a", "b", "b", "b", "b"] * 50)
    folds = cut(rows, count)
    assert sorted(n for fold in folds for n in fold) == list(range(len(rows)))
    for fold in folds:
        found = Counter(rows[n].values["label"] for n in fold)
        assert found["a"] == pytest.approx(100 / count, abs=2)
        assert found["b"] == pytest.approx(200 / count, abs=2)
    texts = [{rows[n].texts[0] for n in fold} for fold in folds]
    assert sum(map(len, texts)) == len(set.union(*texts))  # copies stay together


def test_folds_depend_on_no_order():
    rows = make_rows(["a", "a", "b", "b", "c", "c"] * 20)
    mixed = Random(0).sample(rows, len(rows))
    first, second = (
        [sorted(each[n].texts[0] for n in fold) for fold in cut(each, 4)] for each in (rows, mixed)
    )
    assert first == second


def test_a_label_that_no_other_fold_has_is_always_trained_on():
    rows = make_rows(["a", "a"] * 20 + ["twins", "twins", "once"])
    folds = cut(rows, 4)
    scored = {rows[n].values["label"] for fold in folds for n in fold}
    assert scored == {"a"}
    rows = make_rows(["a", "a"] * 20 + ["b", "c", "b", "c"])  # two texts each
    for fold in cut(rows, 4):
        inside = {rows[n].values["label"] for n in fold}
        outside = {row.values["label"] for n, row in enumerate(rows) if n not in fold}
        assert inside <= outside


def validate(
    files: TaskFiles, monkeypatch: pytest.MonkeyPatch, count: int = 3, **settings: Any
) -> tuple[Any, list[TaskData], list[str]]:
    config = replace(CONFIG, folds=count, epochs=2, **settings)
    seen, lines, loaded = list[TaskData](), list[str](), make_loaded()

    def train(data: TaskData, *arguments: Any, **more: Any) -> Any:
        seen.append(data)
        return train_seeds(data, *arguments, **more)

    monkeypatch.setattr(run_module, "train_seeds", train)
    request = Request(Path("model"), files, config)
    return cross_validate(request, loaded, CPU, Pulse(lines.append)), seen, lines


def spell(data: Any) -> set[str]:
    return {" ".join(row.texts) for row in data.rows}


@pytest.mark.parametrize(
    ("task", "columns", "metric"),
    [
        ("classification", LABELS, "accuracy"),
        ("multilabel", LABELS, "micro_f1"),
        ("regression", {"sentence1": "sentence1", "label": "value"}, "mean_squared_error"),
        ("tokens", {}, "span_f1"),
    ],
)
def test_every_example_is_scored_by_a_model_of_the_others(
    task: str, columns: dict[str, Any], metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write = write_tags if task == "tokens" else write_nouns
    path = write(tmp_path / ("train.conll" if task == "tokens" else "train.tsv"), 90)
    files = TaskFiles(task=task, train=path, columns=columns)
    found, seen, lines = validate(files, monkeypatch)
    tested = [row for data in seen for row in data.held_out[-1].rows]
    assert found["examples"] == len(tested) == 90
    for data in seen:
        assert spell(data.held_out[-1]).isdisjoint(spell(data.train) | spell(data.valid))
        assert spell(data.valid).isdisjoint(spell(data.train))
        assert data.deciding == metric
    assert list(found["baselines"]) == ["majority", "bag of words"]
    for name, scores in found["baselines"].items():
        each = [data.test_baselines[name][metric] for data in seen]
        if task == "regression" and name == "majority":  # a constant correlates with nothing
            assert scores["spearman"] == {"mean": None, "deviation": None}
        assert scores[metric]["mean"] == pytest.approx(mean(each))
        assert scores[metric]["deviation"] == pytest.approx(stdev(each))
    assert found["scores"].keys() >= found["baselines"]["majority"].keys()
    assert [line.split("  ")[1] for line in lines if " of 3  " in line and "fold" in line] == [
        f"fold {number} of 3" for number in (1, 2, 3)
    ]


def test_examples_that_choose_the_weights_may_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    train, valid = write_nouns(tmp_path / "a.tsv", 60), write_nouns(tmp_path / "b.tsv", 20)
    files = TaskFiles(task="classification", train=train, valid=valid, columns=LABELS)
    _, seen, _ = validate(files, monkeypatch)
    assert all(len(data.valid) == 20 for data in seen)
    assert all(len(data.train) + len(data.held_out[-1]) == 60 for data in seen)


def test_more_folds_than_examples_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = TaskFiles(
        task="classification", train=write_nouns(tmp_path / "a.tsv", 9), columns=LABELS
    )
    with pytest.raises(ConfigError, match=r"folds = 40 is too many: the 9 examples of .*a\.tsv"):
        validate(files, monkeypatch, count=40)


def test_a_run_reports_folds_and_writes_a_model(tmp_path: Path, cli: Cli):
    save_model(tmp_path / "start", make_loaded().model, TOKENIZER)
    table = write_nouns(tmp_path / "a.tsv", 60)
    command = ["finetune", str(tmp_path / "start"), "--train", str(table), "--epochs", "1"]
    command += ["--columns", "text=sentence1", "label=label", "--task", "classification"]
    lines = cli(*command, "--folds", "3", "--seeds", "2", "--out", tmp_path / "run").splitlines()
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert len(results["runs"]) == 2
    [saved] = [line for line in lines if line.startswith("the model that is saved")]
    assert f"{results['train_examples']} examples; {results['valid_examples']} choose" in saved
    place = lines.index("in 3 folds, on 60 examples, mean ± deviation:")
    accuracy = next(line for line in lines[place:] if line.startswith("accuracy"))
    found = results["folds"]["scores"]["accuracy"]
    assert accuracy.endswith(f"{found['mean']:.4f} ± {found['deviation']:.4f}")
    assert accuracy.count("±") == 3
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert f"In 3 folds: {found['mean']:.4f} ± {found['deviation']:.4f}." in card
    assert main(["predict", str(tmp_path / "run"), "the cat"]) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--folds", "1"], "folds = 1 must be at least 2"),
        (["--folds", "61"], "folds = 61 is too many"),
    ],
)
def test_a_number_of_folds_that_is_none_is_one_line(
    flags: list[str], message: str, tmp_path: Path, cli: Cli
):
    save_model(tmp_path / "start", make_loaded().model, TOKENIZER)
    table = write_nouns(tmp_path / "a.tsv", 60)
    command = ["finetune", str(tmp_path / "start"), "--train", str(table)]
    command += ["--out", str(tmp_path / "run")]
    assert "--folds has no effect with --task embedding" in cli.refuse(
        *command, "--task", "embedding", "--folds", "3"
    )
    columns = ["--columns", "text=sentence1", "label=label"]
    assert message in cli.refuse(*command, *columns, "--task", "classification", *flags)
    assert not (tmp_path / "run").exists()
