"""``maskwright finetune --unlabeled``: text of the task first, then its labels."""

import json
from pathlib import Path

import pytest

import maskwright
from maskwright.errors import MaskwrightError
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.task import load_label_task, read_sets
from tests.cli.test_finetune import FAST, write_table
from tests.command import Cli

COLUMNS = ("--columns", "sentence1=text", "label=right")


def list_command(workplace: Path, tmp_path: Path, *more: object) -> list[object]:
    train = write_table(tmp_path / "train.tsv")
    command = ["finetune", workplace / "runs" / "small", "--task", "classification", *FAST]
    return [*command, "--train", train, *COLUMNS, "--out", tmp_path / "run", *more]


def test_text_of_the_task_is_learned_first_without_the_held_out_examples(
    workplace: Path, tmp_path: Path, cli: Cli
):
    test = tmp_path / "test.tsv"
    test.write_text("text\tright\nThe old owl eats mice.\tyes\nThe owl  eats grass.\tno\n")
    unlabeled = tmp_path / "unlabeled.tsv"
    other = [f"The young fox {number} eats berries and seeds." for number in range(400)]
    more = ("--test", test, "--unlabeled", unlabeled, "--unlabeled_minutes", "0.02")
    command = list_command(workplace, tmp_path, *more)
    train = [line.split("\t")[0] for line in (tmp_path / "train.tsv").read_text().splitlines()]
    shouted = "THE OLD OWL EATS MICE."  # capitals and blanks do not matter
    lines = ["text", *train[1:], *other, shouted, "The owl eats  grass."]
    unlabeled.write_text("\n".join(lines) + "\n")
    columns = {"sentence1": "text", "label": "right"}
    files = TaskFiles(task="classification", train=tmp_path / "train.tsv", columns=columns)
    _, valid = read_sets(load_label_task("classification"), files, None)
    printed = cli(*command)
    assert f"522 texts; {len(valid) + 2} of them are validation or test examples" in printed
    [kept] = (tmp_path / "run-text").glob("texts-*.jsonl")
    texts = [next(iter(json.loads(line).values())) for line in kept.read_text().splitlines()]
    held_out = {row.texts[0] for row in valid}
    assert len(texts) == 520 - len(valid)
    assert {*texts} == ({*train[1:]} | {*other}) - held_out
    asked = json.loads((tmp_path / "run" / "provenance.json").read_text())["asked"]
    assert asked["model"] == str(tmp_path / "run-adapted" / "model")
    origin = json.loads((tmp_path / "run-adapted" / "provenance.json").read_text())["init_from"]
    assert origin["name"] == str(workplace / "runs" / "small" / "model")
    assert "is already finished" in cli(*command)
    unlabeled.write_text("\n".join(["text", *other]) + "\n")
    code, _, err = cli.run(*command)  # other text, so another encoder
    assert code == 2
    assert "run-adapted is another run: text = " in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--unlabeled_minutes", "1"], "--unlabeled"),
        (["--unlabeled", "TRAIN", "--unlabeled_minutes", "0"], "unlabeled_minutes"),
        (["--unlabeled", "TRAIN", "--folds", "3"], "holds no text but"),
        (["--unlabeled", "words.conll"], "words.conll"),
    ],
)
def test_text_without_use_is_refused(
    more: list[str], named: str, workplace: Path, tmp_path: Path, cli: Cli
):
    given = [tmp_path / "train.tsv" if one == "TRAIN" else one for one in more]
    assert named in cli.refuse(*list_command(workplace, tmp_path, *given))
    assert not (tmp_path / "run").exists()


def test_a_task_without_labels_takes_no_such_text(workplace: Path, tmp_path: Path):

    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"cat {n}\tdog {n}\n" for n in range(40)))
    with pytest.raises(MaskwrightError, match="--unlabeled has no effect"):
        maskwright.finetune(
            workplace / "runs" / "small",
            task="embedding",
            train=pairs,
            out=tmp_path / "run",
            columns={"sentence1": 0, "sentence2": 1},
            unlabeled=pairs,
        )
