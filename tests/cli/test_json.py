"""``--json`` prints an object a line, all of one shape, which ``datasets`` reads as a table."""

import json
from pathlib import Path
from typing import Any

import pytest

from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.model.config import Level, ProblemType
from maskwright.model_folder.classifier_folder import save_classifier
from tests.command import Cli
from tests.finetuning.helpers import TOKENIZER, make_loaded

# Every kind of model that predicts: level, problem, labels, texts of an example.
KINDS: dict[str, tuple[Level, ProblemType, tuple[str, ...], int | None]] = {
    "labels": ("text", "single_label_classification", ("a", "b"), 1),
    "pairs": ("text", "single_label_classification", ("a", "b"), 2),
    "several": ("text", "multi_label_classification", ("a", "b", "c"), 1),
    "number": ("text", "regression", ("score",), 1),
    "tags": ("token", "single_label_classification", ("O", "B-x"), None),
    "spans": ("span", "single_label_classification", ("start", "end"), None),
}
# More lines than Polars looks at to infer a schema; the first and the last ones are unlike.
TEXTS = ["the cat sees the dog", "", *["the dog"] * 120, "cat", "the the the"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {kind: tmp_path_factory.mktemp("models") / kind for kind in KINDS}
    for kind, (level, problem, labels, num_texts) in KINDS.items():
        model = build_classifier(make_loaded().model, FinetuneConfig(), level, len(labels), seed=0)
        save_classifier(folders[kind], model, TOKENIZER, labels, problem, num_texts=num_texts)
    return folders


def check(printed: str, path: Path) -> list[dict[str, Any]]:
    """The objects that were printed, if they are lines of one shape."""
    path.write_text(printed, encoding="utf-8")
    datasets = pytest.importorskip("datasets")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    rows = [json.loads(line, parse_constant=refuse) for line in printed.splitlines()]
    assert rows
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    table = datasets.Dataset.from_json(str(path), cache_dir=str(path.parent / "cache"))
    assert (table.num_rows, table.column_names) == (len(rows), [*rows[0]])
    return rows


def write_inputs(folder: Path, kind: str) -> Path:
    path = folder / "texts.jsonl"
    names = ("question", "context") if kind == "spans" else ("sentence1", "sentence2")
    both = kind in ("pairs", "spans")
    rows = (dict.fromkeys(names[: 1 + both], text) for text in TEXTS)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_predict_prints_objects_of_one_shape(
    models: dict[str, Path], tmp_path: Path, cli: Cli, kind: str
) -> None:
    path = write_inputs(tmp_path, kind)
    rows = check(cli("predict", models[kind], "--table", path, "--json"), tmp_path / "out.jsonl")
    assert len(rows) == len(TEXTS)
    if kind == "tags":
        assert [row["text"] for row in rows] == TEXTS
        for row in rows:
            words = row["words"]
            assert [row["text"][one["start"] : one["end"]] for one in words] == row["text"].split()
            assert {tuple(one) for one in words} <= {tuple(rows[0]["words"][0])}
    else:
        assert [row["texts"][0] for row in rows] == TEXTS
        assert [row["label"] is None for row in rows] == [not text for text in TEXTS]


def test_predict_prints_entities_and_files_of_words_alike(
    models: dict[str, Path], tmp_path: Path, cli: Cli
) -> None:
    path = write_inputs(tmp_path, "tags")
    printed = cli("predict", models["tags"], "--table", path, "--entities", "--json")
    assert [row["text"] for row in check(printed, tmp_path / "out.jsonl")] == TEXTS
    conll = tmp_path / "words.conll"
    conll.write_text("the\tO\ncat\tO\n\n" * 3)
    rows = check(cli("predict", models["tags"], conll, "--json"), tmp_path / "words.jsonl")
    assert [row["text"] for row in rows] == ["the cat"] * 3


COMMANDS = {
    "evaluate": ("{run}", "--suite", "mlm,fill", "--fast"),
    "inspect": ("{run}", "--rows", "3"),
    "search": ("{run}", "the cat", "the river", "--file", "{text}", "--top", "2"),
    "tokenizer compare": ("{run}", "{letters}", "--on", "{text}", "{other}"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_objects_of_one_shape(
    workplace: Path, tmp_path: Path, cli: Cli, command: str
) -> None:
    text, letters, other = workplace / "animals.txt", tmp_path / "letters", tmp_path / "other.txt"
    other.write_text("The cat eats zebras.\n")
    if command == "tokenizer compare":
        cli("tokenizer", "train", text, "--out", letters, "--tokenizer.kind", "character")
    run = workplace / "runs" / "small"
    places = {"run": run, "text": text, "letters": letters, "other": other}
    words = [word.format(**places) for word in COMMANDS[command]]
    rows = check(cli(*command.split(), *words, "--json"), tmp_path / "out.jsonl")
    assert len(rows) == {"evaluate": 1, "inspect": 3, "search": 2, "tokenizer compare": 4}[command]
