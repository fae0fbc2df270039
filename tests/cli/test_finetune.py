"""``maskwright finetune`` and ``maskwright predict`` on a run of pretraining."""

import csv
import json
from itertools import product
from pathlib import Path

import pytest
import torch

from maskwright import console
from maskwright.cli.main import main
from maskwright.logs import read_metrics
from maskwright.model_folder.model_card import read_example
from maskwright.provenance import show_computation
from maskwright.train.device import describe_computation
from tests.command import Cli

FAST = ["--epochs", "2", "--learning_rate", "0.003", "--device", "cpu", "--beside", "off"]


def write_table(path: Path, count: int = 120) -> Path:
    """Who eats what, and whether that is so."""
    food = {"horse": "grass", "cat": "fish", "bird": "seeds", "fox": "berries"}
    lines = ["text\tright\tcount"]
    for number in range(count):
        animal, eaten = sorted(food)[number % 4], sorted(food.values())[number // 4 % 4]
        size = ("small", "big", "old", "young")[number // 16 % 4]
        is_so = "yes" if food[animal] == eaten else "no"
        lines.append(f"The {size} {animal} {number} eats {eaten}.\t{is_so}\t{number}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def answers(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuned run."""
    folder = tmp_path_factory.mktemp("answers")
    table = write_table(folder / "train.tsv")
    arguments = ["finetune", str(workplace / "runs" / "small"), "--task", "classification"]
    arguments += ["--train", str(table), "--columns", "sentence1=text", "label=right", *FAST]
    assert main([*arguments, "--out", str(folder / "run"), "--seeds", "2", "--control"]) == 0
    return folder / "run"


def read_num_texts(run: Path) -> int | None:
    return json.loads((run / "model" / "config.json").read_text())["maskwright"].get("num_texts")


def test_a_run_says_all_about_itself(answers: Path):
    results = json.loads((answers / "results.json").read_text())
    assert results["labels"].keys() == {"no", "yes"}
    assert results["deciding_metric"] == "accuracy"
    here = describe_computation("auto", torch.device("cpu"))
    assert results["computation"] == here
    assert show_computation(here) in (answers / "report.html").read_text()
    assert {"majority", "bag of words"} == results["baselines"].keys()
    for scores in (results["scores"], results["random_encoder"]):
        assert scores["accuracy"].keys() == {"mean", "deviation"}
    assert [run["seed"] for run in results["runs"]] == [0, 1]
    best = results["runs"][results["saved_seed"]]["scores"]
    assert best["accuracy"] == max(run["scores"]["accuracy"] for run in results["runs"])
    matrix = results["confusion_matrix"]
    right = sum(counts.get(label, 0) for label, counts in matrix.items())
    assert right / results["valid_examples"] == pytest.approx(best["accuracy"])
    assert [found["examples"] for found in results["classes"].values()] == [
        sum(matrix.get(label, {}).values()) for label in results["labels"]
    ]
    with (answers / "predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["label"] == row["prediction"] for row in rows) == right
    assert "Confusion matrix" in (answers / "report.html").read_text()
    records = read_metrics(answers / "metrics.jsonl")
    assert {record["seed"] for record in records} == {0, 1}
    assert [record.get("run") for record in records].count("control") == len(records) // 2
    assert json.loads((answers / "provenance.json").read_text())["asked"]["files"]["task"]
    card = (answers / "model" / "README.md").read_text()
    assert "Fine-tuned by maskwright from" in card
    [example] = read_example(card)
    assert len(example.split()) == 4
    assert not any(example in row["sentence1"] for row in rows)
    assert read_num_texts(answers) == 1


def test_what_takes_its_time_is_heard_of(
    workplace: Path, answers: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(console, "EVERY_SECONDS", 0)
    table = write_table(tmp_path / "train.tsv", count=60)
    arguments = ["finetune", str(workplace / "runs" / "small"), "--task", "classification"]
    arguments += ["--train", str(table), "--columns", "sentence1=text", "label=right"]
    arguments += [*FAST, "--epochs", "1", "--batch_size", "8", "--valid", str(table)]
    lines = cli(*arguments, "--out", tmp_path / "run").splitlines()
    assert lines[0] == "columns: sentence1 = text, label = right"
    assert lines[1] == f"reading {table}, scoring baselines"
    [noisy] = [line for line in lines if "noisy" in line]
    assert "only 60 examples" in noisy
    assert "--valid" in noisy
    assert [line.partition("  loss")[0] for line in lines if " of 8  loss" in line] == [
        f"  seed 0  step {step} of 8" for step in range(1, 9)
    ]
    assert "  60 of 60 examples scored" in lines
    assert cli.run("predict", answers, table)[2] == "60 texts answered\n"


def test_it_answers_texts_files_and_tables(answers: Path, tmp_path: Path, cli: Cli):
    found = json.loads(cli("predict", answers, "The cat eats fish.", "--json"))
    assert found["label"] in ("yes", "no")
    assert sum(found["probabilities"].values()) == pytest.approx(1)
    assert found["score"] == max(found["probabilities"].values())
    lines = tmp_path / "lines.txt"
    lines.write_text("The cat eats fish.\n\nThe cat eats grass.\n")
    first, blank, second = cli("predict", answers, "--file", lines).splitlines()
    assert blank == ""  # its row stays, so that answers lie beside texts
    assert first == f"{found['label']}\t{found['score']:.4f}\tThe cat eats fish."
    lines.write_text("id,text\n1,The cat eats fish.\n")
    assert "--table FILE" in cli.refuse("predict", answers, "--file", lines)  # not three texts
    lines.write_text("text, with a comma, is no header of a table.\n")
    cli("predict", answers, "--file", lines)
    table = tmp_path / "table.csv"
    table.write_text("The cat eats grass.,1\n")
    arguments = ["predict", str(answers), "--table", str(table), "--columns", "sentence1=0"]
    assert cli(*arguments).splitlines() == [second]


def test_words_are_tagged(workplace: Path, tmp_path: Path, cli: Cli):
    sentences = ["The O\ncat I-ANIMAL\neats O\nfish I-FOOD\n", "A O\nbird I-ANIMAL\n"]
    (tmp_path / "train.conll").write_text("\n".join(sentences * 10))
    (tmp_path / "valid.conll").write_text(sentences[0])
    arguments = ["finetune", str(workplace / "runs" / "small" / "model"), "--task", "tokens"]
    arguments += ["--train", str(tmp_path / "train.conll"), "--epochs", "20", *FAST[2:]]
    arguments += ["--valid", str(tmp_path / "valid.conll"), "--out", str(tmp_path / "run")]
    assert "span_f1" in cli(*arguments)
    assert "Scores by class" in (tmp_path / "run" / "report.html").read_text()
    tagged = (tmp_path / "run" / "predictions.conll").read_text().splitlines()
    assert [line.split("\t")[1] for line in tagged if line] == ["O", "I-ANIMAL", "O", "I-FOOD"]
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    [example] = read_example(card)
    assert len(example.split()) == 4
    assert example not in " ".join(line.split("\t")[0] for line in tagged)
    assert read_num_texts(tmp_path / "run") is None
    words = [
        line.split("\t")
        for line in cli("predict", tmp_path / "run", "A cat eats.").split("\n")
        if line
    ]
    assert [word for word, _ in words] == ["A", "cat", "eats", "."]
    assert {tag for _, tag in words} <= {"O", "I-ANIMAL", "I-FOOD"}
    check_tagging(tmp_path, cli)


def check_tagging(folder: Path, cli: Cli) -> None:
    """What it learned from is answered word by word, and nothing of it is taken for a text."""
    conll, run = folder / "valid.conll", str(folder / "run")
    answers = cli("predict", run, conll)
    words = [line.partition("\t")[0] for line in answers.splitlines()]
    assert words == ["The", "cat", "eats", "fish", ""]
    other = folder / "eng.testa"
    other.write_text("1 The O\n2 cat I-ANIMAL\n3 eats O\n4 fish I-FOOD\n")
    assert cli("predict", run, other, "--columns", "word=1") == answers
    indexed = folder / "indexed.conll"
    indexed.write_text("1\tThe\tO\n2\tcat\tI-ANIMAL\n3\teats\tO\n4\tfish\tI-FOOD\n")
    assert cli("predict", run, indexed) == answers
    table = folder / "words.csv"
    table.write_text("sentence_id,words\n1,The\n1,cat\n1,eats\n1,fish\n")
    assert cli("predict", run, table) == answers
    lines = folder / "lines.txt"
    lines.write_text("The cat\n\neats\n")
    sentences = [json.loads(line) for line in cli("predict", run, lines, "--json").splitlines()]
    assert [[one["word"] for one in each["words"]] for each in sentences] == [
        ["The", "cat"],
        [],
        ["eats"],
    ]
    for arguments, message in (
        ([str(conll), "--no-header"], "is read as CoNLL, which takes only --columns word=…"),
        (["The cat", "--columns", "word=0"], "--columns word=0 requires a file of words"),
        ([str(folder / "none.conll")], "none.conll does not exist"),
    ):
        assert message in cli.refuse("predict", run, *arguments)


def test_pairs_teach_vectors(workplace: Path, tmp_path: Path, cli: Cli):
    sizes, places = ("small", "big", "old", "young"), ("river", "forest", "garden", "village")
    rows = [
        f"The {size} {animal} eats in the {place}.\t{place}, {size}, every {animal}"
        for size, animal, place in product(sizes, ("horse", "cat", "bird", "fox"), places)
    ]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    arguments = ["finetune", str(workplace / "runs" / "small"), "--task", "embedding", *FAST]
    arguments += ["--train", str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "run")]
    shown = cli(*arguments, "--columns", "sentence1=0", "sentence2=1")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["candidates"] + results["train_pairs"] == 64
    assert results["found"] >= results["before"]["found"]
    assert results["before"]["step"] == 0 < results["step"]
    assert f"learning rate 0.003, on {show_computation(results['computation'])}\n" in shown
    assert f"before training  retrieved among {results['candidates']}: " in shown
    assert "did not improve the score" not in shown
    [*rest, out] = arguments
    still = ["--learning_rate", "1e-30", "--columns", "sentence1=0", "sentence2=1"]
    assert "Try a lower --learning_rate" in cli(*rest, f"{out}-still", *still)
    for flag, value in (("--seeds", "2"), ("--metric", "f1"), ("--pooling", "cls")):
        error = cli.refuse(*arguments[:-1], tmp_path / "no", flag, value)
        assert f"{flag} has no effect with --task embedding" in error
    out = str(tmp_path / "vectors.npy")
    assert main(["embed", str(tmp_path / "run"), "The cat", "--out", out]) == 0
    assert main(["fill", str(tmp_path / "run"), "The [MASK] eats."]) == 0  # its head is still there
    text = str(workplace / "animals.txt")
    scoring = ["evaluate", str(tmp_path / "run"), "--suite", "fill", "--fast", "--device", "cpu"]
    assert main([*scoring, "--data", text]) == 0


def test_held_out_pairs_are_of_other_texts(workplace: Path, tmp_path: Path, cli: Cli):
    table = tmp_path / "pairs.tsv"
    arguments = ["finetune", str(workplace / "runs" / "small"), "--task", "embedding", *FAST]
    arguments += ["--train", str(table), "--columns", "sentence1=0", "sentence2=1"]
    animals, places = ("horse", "cat", "bird", "fox"), ("river", "forest", "garden", "village")
    texts = [f"{a} {size} {b}" for size in ("big", "old") for a in animals for b in places]
    anchored = [f"{text}\t{place} eats {text}" for text in texts for place in places]
    table.write_text("\n".join(anchored) + "\n")
    assert "share a text" not in cli(*arguments, "--out", tmp_path / "a")
    assert json.loads((tmp_path / "a" / "results.json").read_text())["candidates"] == 12
    table.write_text("\n".join(f"{texts[0]}\t{text}" for text in texts) + "\n")
    assert "or all share a text once tokenized" in cli.refuse(*arguments, "--out", tmp_path / "b")
    chain = [f"{a}\t{b}" for a, b in zip(texts, [*texts[1:], texts[0]], strict=True)]
    table.write_text("\n".join(chain) + "\n")
    assert "3 validation pairs share a text with training pairs" in cli(
        *arguments, "--out", tmp_path / "c"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either --task or --preset"),
        (["--task", "classification", "--epochs", "0"], "epochs = 0.0 must be above 0"),
        (["--task", "classification", "--valid-share", "1"], "--valid-share = 1.0 must be"),
        (
            ["--task", "classification", "--valid", "v.tsv", "--valid-share", "0.2"],
            "--valid-share has no effect with --valid",
        ),
        (["--task", "classification", "--columns", "text"], "--columns text is not ROLE=COLUMN"),
        (["--task", "classification", "--columns", "word=0"], "roles are sentence1, sentence2"),
        (["--task", "tokens", "--columns", "tag=ner"], "has no column word"),
        (
            ["--task", "regression", "--class_weights", "true"],
            "--class_weights has no effect with --task regression",
        ),
        (
            ["--task", "tokens", "--pooling", "cls"],
            "pooling = cls is not supported by ModernBertForTokenClassification. It labels",
        ),
        (
            ["--task", "classification", "--columns", "sentence1=count", "sentence1=text"],
            "--columns sentence1=text: sentence1 = count already.",
        ),
        (
            ["--task", "embedding", "--max_length", "100000"],
            "max_length = 100000 is more than the model's maximum of 32 tokens.",
        ),
        (["--task", "tokens", "--device", "none"], "device = none is not a device here"),
        (
            ["--preset", "sst2", "--train", "mails.csv"],
            "mails.csv is not a file of SST-2 (train.tsv, dev.tsv, train_full.tsv). Give",
        ),
        (["--task", "classification"], "has no column for label: it has text, right, count."),
        (["--preset", "sst2"], "has no column sentence for sentence1"),
        (
            ["--task", "regression", "--columns", "sentence1=text", "label=right"],
            "label = no is not a number",
        ),
    ],
)
def test_bad_input_is_one_line(
    workplace: Path, tmp_path: Path, cli: Cli, arguments: list[str], message: str
):
    table = write_table(tmp_path / "train.tsv")
    command = ["finetune", str(workplace / "runs" / "small"), "--train", str(table), *arguments]
    error = cli.refuse(*command, "--out", tmp_path / "run")
    assert message in error
    assert "train.device" not in error
    assert not (tmp_path / "run").exists()


def test_nothing_is_overwritten(workplace: Path, tmp_path: Path, cli: Cli):
    (tmp_path / "thesis.txt").write_text("years of work")
    table = write_table(tmp_path / "train.tsv")
    arguments = ["finetune", str(workplace / "runs" / "small"), "--task", "classification"]
    arguments += ["--train", str(table), "--columns", "sentence1=text", "label=right"]
    for out in (tmp_path, workplace / "runs" / "small", tmp_path / "thesis.txt"):
        assert "exists already. Choose another folder" in cli.refuse(*arguments, "--out", out)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_run_that_did_not_end_has_no_model(tmp_path: Path, cli: Cli):
    (tmp_path / "provenance.json").write_text('{"asked": {"finetune": {}}}')
    assert f"maskwright finetune --resume {tmp_path}" in cli.refuse("predict", tmp_path, "text")


def test_models_are_told_apart(workplace: Path, answers: Path, cli: Cli):
    assert "is not a classifier" in cli.refuse("predict", workplace / "runs" / "small", "text")
    assert "Use maskwright predict, or evaluate --suite labels" in cli.refuse(
        "fill", answers, "The [MASK]."
    )


def test_a_second_sentence_is_learned_if_there_is_one(workplace: Path, tmp_path: Path, cli: Cli):
    lines = ["sentence1\tsentence2\tlabel"]
    lines += [f"The cat {n}\teats {n}.\t{'ab'[n % 2]}" for n in range(60)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    arguments = ["finetune", str(workplace / "runs" / "small"), "--task", "classification", *FAST]
    arguments += ["--train", str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "run")]
    out = cli(*arguments, "--max_length", "12")
    tokenizer = json.loads((tmp_path / "run" / "model" / "tokenizer_config.json").read_text())
    assert tokenizer["model_max_length"] == 12  # for predict, serve and transformers
    assert "columns: sentence1 = sentence1, sentence2 = sentence2, label = label" in out
    answers = cli("predict", tmp_path / "run", tmp_path / "pairs.tsv").splitlines()
    assert len(answers) == 60
    assert answers[0].endswith("\tThe cat 0\teats 0.")
    assert len(read_example((tmp_path / "run" / "model" / "README.md").read_text())) == 2
    assert read_num_texts(tmp_path / "run") == 2


def test_a_file_is_read_and_not_answered(answers: Path, tmp_path: Path, cli: Cli):
    (tmp_path / "lines.txt").write_text("The cat eats fish.\nThe cat eats grass.\n")
    assert len(cli("predict", answers, tmp_path / "lines.txt").splitlines()) == 2
    table = write_table(tmp_path / "like-train.tsv", count=8)  # its columns are known by now
    [first, *others] = cli("predict", answers, table).splitlines()
    assert first.endswith("\tThe small bird 0 eats berries.")
    assert len(others) == 7
    assert "lines.txt does not exist" in cli.refuse("predict", answers, "lines.txt")
    assert "--columns and --header require a table" in cli.refuse(
        "predict", answers, "text", "--columns", "sentence1=0"
    )
    (tmp_path / "a.conll").write_text("The O\n")
    assert "a.conll holds words, but this model labels texts" in cli.refuse(
        "predict", answers, tmp_path / "a.conll"
    )


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_nothing_to_answer_is_an_error(answers: Path, tmp_path: Path, cli: Cli, content: str):
    (tmp_path / "lines.txt").write_text(content)
    for text in (content, tmp_path / "lines.txt"):
        assert "holds no text. Give at least one." in cli.refuse("predict", answers, text)


def test_a_classifier_is_exported_on_the_examples_that_it_was_scored_on(
    answers: Path, tmp_path: Path, cli: Cli
):
    for source, name in ((answers, "run"), (answers / "model", "model")):
        command = ["export", str(source), "--to", "hf", "--out", str(tmp_path / name)]
        assert "on 120 texts (train.tsv)" in cli(*command)
    (tmp_path / "alone").symlink_to(answers / "model")
    command = ["export", str(tmp_path / "alone"), "--out", str(tmp_path / "out"), "--to"]
    assert "--data" in cli.refuse(*command, "onnx-int8")
    assert "nowhere.tsv" in cli.refuse(*command, "onnx", "--data", tmp_path / "nowhere.tsv")
