"""Labels of texts and pairs of texts, and rankings: labels, losses, ranks, the cross-encoder."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import label_ranking_average_precision_score

from maskwright import Predictor
from maskwright.cli.main import main
from maskwright.corpus.table_files import TableRow
from maskwright.errors import CorpusError
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.fit import weigh_labels
from maskwright.finetuning.report import rate_mistake
from maskwright.finetuning.task import Labels, load_label_task
from maskwright.finetuning.text_tasks import (
    Classification,
    MultiLabel,
    Ranking,
    Regression,
    measure_reciprocal_rank,
)
from maskwright.finetuning.token_task import Tokens
from tests.command import Cli

CLASSES, SEVERAL, NUMBER = Classification(), MultiLabel(), Regression()


def rows(*labels: Any) -> list[TableRow]:
    return [TableRow(f"t.tsv:{n}", {"label": label}) for n, label in enumerate(labels, start=1)]


def test_labels_are_found_in_one_order_whatever_comes_first():
    labels = CLASSES.find_labels(rows("pos", "neg", "pos"))
    assert (labels.names, labels.counts) == (("neg", "pos"), (1, 2))
    assert CLASSES.encode_labels(rows("pos", "neg"), labels).tolist() == [1, 0]
    numbers = CLASSES.find_labels(rows("10", "9", 9.0, 10))
    assert numbers.names == ("9", "10")  # in the order of numbers, and 9.0 is 9


def test_several_labels_at_once_are_read_in_every_spelling():
    given = rows("a, b", "a,c", '["b"]', ["c", "a", None], "", math.nan)
    labels = SEVERAL.find_labels(given)
    assert labels.names == ("a", "b", "c")
    expected = [[1, 1, 0], [1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert SEVERAL.encode_labels(given, labels).tolist() == expected


def test_commas_are_parts_of_names_if_training_labels_have_bars():
    labels = Labels(("Food, drinks", "Travel"))
    scored = rows("Food, drinks", "Travel|Food, drinks")  # also where no label has a bar
    assert SEVERAL.encode_labels(scored[:1], labels).tolist() == [[1, 0]]
    assert SEVERAL.encode_labels(scored, labels).tolist() == [[1, 0], [1, 1]]


def test_tags_begin_with_that_of_no_entity():
    sentences = [TaggedSentence("", (), tags) for tags in (("I-PER", "O"), ("I-LOC",))]
    labels = Tokens().find_labels(sentences)
    assert labels.names == ("O", "I-LOC", "I-PER")
    assert labels.encode(["I-PER", "O"], "x") == [2, 0]


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        ("classification", ["a", "a"], "all 2 examples have the label a, .* at least 2"),
        ("classification", ["a", " "], "t.tsv:2 has no label"),
        ("classification", ["nan", "NaN "], "t.tsv:2 has no label"),  # nan is Min Nan, a language
        ("classification", ["a", ["a", "b"]], r"t.tsv:2: label = \['a', 'b'\] .* multilabel"),
        ("classification", ["a", {"b": 1}], r"t.tsv:2: label = \{'b': 1\} must be a string"),
        ("multilabel", ["a", {"b": 1}], r"t.tsv:2: label = \{'b': 1\} must be a string"),
        ("multilabel", ["a", ["a", ["b"]]], r"t.tsv:2: label = \['b'\] must be a string"),
        ("multilabel", ["", ""], "have the label none"),
        ("multilabel", ["[1"], r"t.tsv:1: label = \[1 is not a JSON list"),
        ("regression", ["1", "high"], "t.tsv:2: label = high is not a number"),
        ("regression", ["1", "3,5"], "label = 3,5 is not a number .* Write a decimal point"),
        ("regression", ["1", "-2e18"], r"t.tsv:2: label = -2e18 is not a number within ±1e\+18"),
        ("regression", ["1", "nan"], "t.tsv:2: label = nan is not a number"),
        ("regression", ["2", 2.0], "all 2 examples have label = 2,"),
        ("multilabel", ["a|b|a"], "t.tsv:1: label = a is named twice"),
        ("multilabel", [[1, 0, 1], [1, 0]], "t.tsv:1: label = 1 is named twice"),
        ("multilabel", [[0.9, 0.1], [0.2, 0.8]], "t.tsv:1: label = 0.9 in a list"),
        ("regression", ["1", None], "t.tsv:2: label = None is not a number"),
    ],
)
def test_what_cannot_be_learned_is_named(task: str, labels: list[Any], message: str):
    with pytest.raises(CorpusError, match=message):
        load_label_task(task).find_labels(rows(*labels))


def test_a_label_that_training_never_saw_is_named():
    labels = CLASSES.find_labels(rows("a", "b"))
    with pytest.raises(CorpusError, match=r"t.tsv:1 has the label c, which .* they have a, b\."):
        CLASSES.encode_labels(rows("c"), labels)


def test_weights_make_all_labels_count_alike():
    labels = CLASSES.find_labels(rows("a", "a", "a", "b"))
    weighted = weigh_labels(CLASSES.problem, labels.counts, 4) * np.array(labels.counts)
    assert weighted == pytest.approx([2, 2])
    several = SEVERAL.find_labels(rows("a", "a,b", "a", "a"))
    weights = weigh_labels(SEVERAL.problem, several.counts, 4)
    assert weights.tolist() == [0.25, 3]  # one of all examples still counts


@pytest.mark.parametrize(
    "labels",
    [
        [[1.0, 0.0, 1.0], [0, 0, 0], [0, 1, 0]],
        [[True, False, True], None, [False, True, False]],
        ["1 0 1", "0 0 0", "0 1 0"],
        ["[1, 0, 1]", "", "[0, 1, 0]"],
    ],
)
def test_vectors_of_0_and_1_are_labels_by_position(labels: list[Any], tmp_path: Path):
    path, task = tmp_path / "a.jsonl", MultiLabel()
    path.write_text("\n".join(json.dumps({"text": "x", "label": label}) for label in labels))
    columns = {"sentence1": "text", "label": "label"}
    found = task.read(path, TaskFiles(task="multilabel", train=path, columns=columns), None)
    names = task.find_labels(found)
    assert (names.names, names.counts) == (("0", "1", "2"), (1, 1, 1))
    assert task.encode_labels(found, names).tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert task.notes == ["a.jsonl: the labels are vectors of 0 and 1, named from 0"]


def test_labels_that_print_alike_are_one():
    spelled = ["caf\u00e9", "cafe\u0301", "\u200bcaf\u00e9", "caf\u00e9\ufeff", "ca\u00adf\u00e9"]
    labels = CLASSES.find_labels(rows(*spelled, "a b", "a\u00a0b"))
    assert (labels.names, labels.counts) == (("a b", "caf\u00e9"), (2, 5))


def write_triplets(path: Path, count: int = 40) -> Path:
    """A passage is right if it names the animal of the query."""
    animals = ("cat", "fox", "snail", "horse")
    lines = ["query\tpassage\tnegative"]
    for number in range(count):
        right, wrong = animals[number % 4], animals[(number + 1 + number // 4 % 3) % 4]
        lines.append(f"what does the {right} eat {number}\tthe {right} eats\tthe {wrong} eats")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_negative_passage_is_a_pair_of_its_own(tmp_path: Path):
    path, task = write_triplets(tmp_path / "train.tsv", 2), Ranking()
    columns = task.find_columns(path, {})
    assert columns == {"sentence1": "query", "sentence2": "passage", "negative": "negative"}
    rows = task.read(path, TaskFiles(task="ranking", train=path, columns=columns), None)
    passages = [row.texts[1] for row in rows]
    assert passages == ["the cat eats", "the fox eats", "the fox eats", "the snail eats"]
    assert task.encode_labels(rows, task.find_labels(rows)).tolist() == [1, 0, 1, 0]


def test_the_worst_mistakes_are_wrong_with_confidence():
    task = Ranking()
    assert rate_mistake(task, 1.0, 12.0, None) is None
    severities = [rate_mistake(task, 1.0, logit, None) or 0.0 for logit in (0.0, -5.0)]
    assert 0 < severities[0] < severities[1]


def test_a_negative_that_is_null_is_an_error(tmp_path: Path):
    path, task = tmp_path / "train.jsonl", Ranking()
    path.write_text('{"query": "a", "passage": "b", "negative": null}\n')
    columns = task.find_columns(path, {})
    rows = task.read(path, TaskFiles(task="ranking", train=path, columns=columns), None)
    with pytest.raises(CorpusError, match=r"train\.jsonl:1: None is not a string"):
        [row.texts for row in rows]


def test_a_table_with_labels_is_read_as_it_is(tmp_path: Path):
    path, task = tmp_path / "train.csv", Ranking()
    path.write_text("query,passage,label\na,b,1\na,c,0\n")
    columns = task.find_columns(path, {})
    rows = task.read(path, TaskFiles(task="ranking", train=path, columns=columns), None)
    assert task.encode_labels(rows, task.find_labels(rows)).tolist() == [1, 0]
    path.write_text("query,passage,label\na,b,3\na,c,0\n")
    rows = task.read(path, TaskFiles(task="ranking", train=path, columns=columns), None)
    with pytest.raises(CorpusError, match="label = 3 must be between 0 and 1"):
        task.encode_labels(rows, task.find_labels(rows))
    path.write_text("query,passage\na,b\n")
    with pytest.raises(CorpusError, match="label"):
        task.find_columns(path, {})


def test_reciprocal_ranks_are_scikit_learns_where_one_passage_is_relevant():
    rng = np.random.default_rng(0)
    scores, queries = rng.normal(size=(20, 5)), np.repeat([f"q{n}" for n in range(20)], 5)
    relevance = np.eye(5)[rng.integers(5, size=20)]
    found = measure_reciprocal_rank(queries.tolist(), relevance.flatten(), scores.flatten())
    assert found == pytest.approx(label_ranking_average_precision_score(relevance, scores))


def test_equal_scores_are_no_merit():
    labels = np.array([1, 0, 0, 1, 0, 1, 1])
    queries = ["a", "a", "a", "b", "b", "c", "c"]  # c has nothing to rank
    assert measure_reciprocal_rank(queries, labels, np.zeros(7)) == pytest.approx(
        (1 / 3 + 1 / 2) / 2
    )
    with pytest.raises(CorpusError, match=r"nothing to rank\. Add such examples; finetune takes"):
        measure_reciprocal_rank(["a", "b"], np.array([1, 0]), np.zeros(2))


def test_the_loss_is_binary_cross_entropy():
    logits, targets = torch.tensor([[2.0], [-1.0]]), torch.tensor([1.0, 0.0])
    expected = -(torch.sigmoid(logits[0]).log() + torch.sigmoid(-logits[1]).log()) / 2
    assert Ranking().loss(logits, targets).item() == pytest.approx(expected.item())


def test_a_cross_encoder_loads_what_was_trained_and_search_uses_it(
    workplace: Path, tmp_path: Path, cli: Cli
):
    path, out = write_triplets(tmp_path / "train.tsv"), tmp_path / "ranker"
    model = str(workplace / "runs" / "small")
    command = ["finetune", model, "--task", "ranking", "--train", str(path), "--out", str(out)]
    assert main([*command, "--epochs", "2", "--device", "cpu"]) == 0
    results = json.loads((out / "results.json").read_text())
    assert results["deciding_metric"] == "mrr"
    assert results["baselines"]["majority"]["mrr"] == 0.5
    folder = write_collection(tmp_path / "beir")
    evaluate = ["evaluate", model, "--suite", "retrieval", "--data", str(folder)]
    [suite] = json.loads(cli(*evaluate, "--rerank", out, "--json"))["suites"]
    scores = {score["name"]: score["value"] for score in suite["scores"]}
    assert scores["retrieval/reranked/recall_100"] == scores["retrieval/recall_100"]
    predict = Predictor(out)
    pairs = [("what does the cat eat", text) for text in ("the fox eats", "the cat eats")]
    best = int(np.argmax([answer.label for answer in predict(pairs)]))
    assert scores["retrieval/reranked/mrr_10"] == (0.5, 1.0)[best]
    assert "--rerank needs --suite retrieval" in cli.refuse(
        "evaluate", model, "--suite", "fill", "--rerank", out
    )


def write_collection(folder: Path) -> Path:
    """A collection in the layout of BEIR with two documents and one query."""
    (folder / "qrels").mkdir(parents=True)
    documents = {"d1": "the fox eats", "d2": "the cat eats"}
    lines = [json.dumps({"_id": name, "text": text}) for name, text in documents.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "what does the cat eat"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td2\t1\n")
    return folder
