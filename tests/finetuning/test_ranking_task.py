"""Rankings: labels and triplets, the loss, reciprocal ranks, and the way to a cross-encoder."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import label_ranking_average_precision_score

from maskwright import Predictor
from maskwright.cli.main import main
from maskwright.errors import CorpusError
from maskwright.finetuning.ranking_task import Ranking, measure_reciprocal_rank
from maskwright.finetuning.request import TaskFiles


def write_triplets(path: Path, count: int = 40) -> Path:
    """A passage is right if it names the animal of the query."""
    animals = ("cat", "fox", "snail", "horse")
    lines = ["query\tpassage\tnegative"]
    for number in range(count):
        right, wrong = animals[number % 4], animals[(number + 1 + number // 4 % 3) % 4]
        lines.append(f"what does the {right} eat {number}\tthe {right} eats\tthe {wrong} eats")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_negative_passage_is_a_pair_of_its_own(tmp_path: Path) -> None:
    path, task = write_triplets(tmp_path / "train.tsv", 2), Ranking()
    columns = task.find_columns(path, {})
    assert columns == {"sentence1": "query", "sentence2": "passage", "negative": "negative"}
    rows = task.read(path, TaskFiles(task="ranking", train=path, columns=columns), None)
    passages = [row.texts[1] for row in rows]
    assert passages == ["the cat eats", "the fox eats", "the fox eats", "the snail eats"]
    assert task.encode_labels(rows, task.find_labels(rows)).tolist() == [1, 0, 1, 0]


def test_the_worst_mistakes_are_wrong_with_confidence() -> None:
    task = Ranking()
    assert [task.is_right(1.0, logit) for logit in (12.0, -5.0)] == [True, False]
    severities = [task.measure_mistake(1.0, logit, None) for logit in (12.0, 0.0, -5.0)]
    assert severities == sorted(severities)


def test_a_negative_that_is_null_is_an_error(tmp_path: Path) -> None:
    path, task = tmp_path / "train.jsonl", Ranking()
    path.write_text('{"query": "a", "passage": "b", "negative": null}\n')
    columns = task.find_columns(path, {})
    rows = task.read(path, TaskFiles(task="ranking", train=path, columns=columns), None)
    with pytest.raises(CorpusError, match=r"train\.jsonl:1: None is not a string"):
        [row.texts for row in rows]


def test_a_table_with_labels_is_read_as_it_is(tmp_path: Path) -> None:
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


def test_reciprocal_ranks_are_scikit_learns_where_one_passage_is_relevant() -> None:
    rng = np.random.default_rng(0)
    scores, queries = rng.normal(size=(20, 5)), np.repeat([f"q{n}" for n in range(20)], 5)
    relevance = np.eye(5)[rng.integers(5, size=20)]
    found = measure_reciprocal_rank(queries.tolist(), relevance.flatten(), scores.flatten())
    assert found == pytest.approx(label_ranking_average_precision_score(relevance, scores))


def test_equal_scores_are_no_merit() -> None:
    labels = np.array([1, 0, 0, 1, 0, 1, 1])
    queries = ["a", "a", "a", "b", "b", "c", "c"]  # c has nothing to rank
    assert measure_reciprocal_rank(queries, labels, np.zeros(7)) == pytest.approx(
        (1 / 3 + 1 / 2) / 2
    )
    with pytest.raises(CorpusError, match=r"nothing to rank\. Add such examples; finetune takes"):
        measure_reciprocal_rank(["a", "b"], np.array([1, 0]), np.zeros(2))


def test_the_loss_is_binary_cross_entropy() -> None:
    logits, targets = torch.tensor([[2.0], [-1.0]]), torch.tensor([1.0, 0.0])
    expected = -(torch.sigmoid(logits[0]).log() + torch.sigmoid(-logits[1]).log()) / 2
    assert Ranking().loss(logits, targets).item() == pytest.approx(expected.item())


def test_a_cross_encoder_loads_what_was_trained_and_search_uses_it(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = write_triplets(tmp_path / "train.tsv"), tmp_path / "ranker"
    model = str(workplace / "runs" / "small")
    command = ["finetune", model, "--task", "ranking", "--train", str(path), "--out", str(out)]
    assert main([*command, "--epochs", "2", "--device", "cpu"]) == 0
    results = json.loads((out / "results.json").read_text())
    assert results["deciding_metric"] == "mrr"
    assert results["baselines"]["majority"]["mrr"] == 0.5
    capsys.readouterr()
    folder = write_collection(tmp_path / "beir")
    evaluate = ["evaluate", model, "--suite", "retrieval", "--data", str(folder)]
    assert main([*evaluate, "--rerank", str(out), "--json"]) == 0
    [suite] = json.loads(capsys.readouterr().out)["suites"]
    scores = {score["name"]: score["value"] for score in suite["scores"]}
    assert scores["retrieval/reranked/recall_100"] == scores["retrieval/recall_100"]
    predict = Predictor(out)
    pairs = [("what does the cat eat", text) for text in ("the fox eats", "the cat eats")]
    best = int(np.argmax([answer.label for answer in predict(pairs)]))
    assert scores["retrieval/reranked/mrr_10"] == (0.5, 1.0)[best]
    assert main(["evaluate", model, "--suite", "fill", "--rerank", str(out)]) == 2
    assert "--rerank needs --suite retrieval" in capsys.readouterr().err


def write_collection(folder: Path) -> Path:
    """A collection in the layout of BEIR with two documents and one query."""
    (folder / "qrels").mkdir(parents=True)
    documents = {"d1": "the fox eats", "d2": "the cat eats"}
    lines = [json.dumps({"_id": name, "text": text}) for name, text in documents.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "what does the cat eat"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td2\t1\n")
    return folder
