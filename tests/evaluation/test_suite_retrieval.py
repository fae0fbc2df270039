"""Vectors find answers: scores of rankings by hand, files in their layout."""

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import maskwright
from maskwright.errors import MaskwrightError
from maskwright.evaluation.suite_vectors import (
    describe_repeated,
    measure_ndcg,
    measure_recall,
    measure_reciprocal_rank,
    rank_by_vectors,
    rank_by_words,
    read_collection,
    rerank,
)
from tests.command import Cli

DOCUMENTS = [
    {"_id": "a", "title": "Cats", "text": "The old cat in the village eats fish."},
    {"_id": "b", "title": "", "text": "The young horse in the river eats grass."},
    {"_id": "c", "text": "The small bird in the forest eats seeds and berries every day."},
]
QUERIES = [
    {"_id": "1", "text": "which cat eats fish"},
    {"_id": "2", "text": "what does the horse eat, grass"},
    {"_id": "3", "text": "not judged"},
]
QRELS = "query-id\tcorpus-id\tscore\n1\ta\t2\n2\tb\t1\n2\tc\t-1\n2\tmissing\t1\n"


def write_lines(path: Path, records: Sequence[Any]) -> None:
    text = "\n".join(json.dumps(record) for record in records) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl.gz", DOCUMENTS)
    write_lines(folder / "queries.jsonl", QUERIES)
    (folder / "qrels" / "test.tsv").write_text(QRELS)
    return folder


def test_a_collection_is_read(folder: Path):
    task = read_collection(folder)
    assert task.documents["a"] == "Cats The old cat in the village eats fish."
    assert task.documents["c"].startswith("The small bird")
    assert task.queries.keys() == {"1", "2"}
    assert task.grades == {"1": {"a": 2}, "2": {"b": 1, "c": 0, "missing": 1}}


def test_judgments_need_no_header(folder: Path):
    expected = read_collection(folder)
    (folder / "qrels" / "test.tsv").write_text(QRELS.partition("\n")[2])
    assert read_collection(folder) == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("queries.jsonl", '{"_id": "1"}\n'),
        ("queries.jsonl", "no json\n"),
        ("queries.jsonl", "3\n"),
        ("queries.jsonl", '{"_id": "1", "text": null}\n'),
        ("queries.jsonl", '{"_id": "1", "text": ' + "[" * 100_000),
        ("queries.jsonl", '{"_id": null, "text": "who"}\n'),
        ("queries.jsonl", '{"_id": 1, "text": "who"}\n{"_id": "1", "text": "where"}\n'),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n9\t9\t1\n"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\ta\tgood\n"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\ta\t0.5\n"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\t9\t1\n"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\t9\t1\n1\ta\t0\n"),
        ("queries.jsonl", None),
        ("qrels/test.tsv", None),
    ],
)
def test_damaged_files_are_named(folder: Path, name: str, content: str | None):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(MaskwrightError, match=Path(name).name):
        read_collection(folder)


def test_measures_by_hand():
    grades, ranking = {"a": 2, "b": 1, "c": 1}, ["x", "b", "y", "a"]
    gains = 1 / math.log2(3) + 2 / math.log2(5)
    best = 2 + 1 / math.log2(3) + 1 / math.log2(4)
    assert measure_ndcg(grades, ranking) == pytest.approx(gains / best)
    assert measure_ndcg(grades, ["a", "b", "c"]) == pytest.approx(1)
    assert measure_recall(grades, ranking, 10) == pytest.approx(2 / 3)
    assert measure_recall(grades, ranking, 2) == pytest.approx(1 / 3)
    assert measure_reciprocal_rank(grades, ranking) == pytest.approx(1 / 2)
    assert measure_reciprocal_rank(grades, ["x"] * 10 + ["a"]) == 0


def test_bm25_finds_words(folder: Path):
    rankings = rank_by_words(read_collection(folder))
    assert [ranking[0] for ranking in rankings.values()] == ["a", "b"]
    assert "c" not in rankings["1"][:2] or len(rankings["1"]) == 3


class Constant:
    """Stand-in for an embedder whose vectors are all equal."""

    def __call__(self, texts: Sequence[str], prompt_name: str = "") -> NDArray[np.float32]:
        return np.ones((len(texts), 4), np.float32)

    def stream(self, texts: Iterable[str], prompt_name: str = "") -> Iterator[NDArray[np.float32]]:
        yield self(list(texts))

    def comparable(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        return vectors

    def compare(self, one: NDArray[np.float32], two: NDArray[np.float32]) -> NDArray[np.float32]:
        return one @ two.T


def test_ties_do_not_favor_the_model(folder: Path):
    task = read_collection(folder)
    rankings = rank_by_vectors(cast(Any, Constant()), task)
    assert rankings["1"] == ["b", "c", "a"]
    assert rankings["2"] == ["a", "c", "b"]
    again = rerank(
        cast(Any, lambda pairs: [SimpleNamespace(label=0.5)] * len(pairs)), task, rankings
    )
    assert again == rankings


def test_a_query_does_not_find_itself(folder: Path):
    write_lines(folder / "queries.jsonl", [{"_id": "a", "text": "Cats old cat village fish"}])
    qrels = folder / "qrels" / "test.tsv"
    for relevant, found in (
        ("b", []),
        ("a", ["a"]),
    ):  # BEIR's ArguAna; ids that are alike by chance
        qrels.write_text(f"query-id\tcorpus-id\tscore\na\t{relevant}\t1\n")
        ranked = rank_by_words(read_collection(folder))["a"]
        assert [name for name in ranked if name == "a"] == found


def test_a_model_is_scored(workplace: Path, folder: Path):
    model = workplace / "runs" / "small" / "model"
    found = maskwright.evaluate(model, suite="retrieval", data=folder)
    scores = {score["name"]: score for score in found["suites"][0]["scores"]}
    assert found["suites"][0]["settings"]["split"] == "test"
    # One of the two answers to the second query is not in the corpus.
    assert scores["retrieval/recall_100"]["value"] == (1 + 1 / 2) / 2
    best = 1 / (1 + 1 / math.log2(3))
    assert scores["retrieval/ndcg_10"]["baseline"] == pytest.approx((1 + best) / 2)
    assert scores["retrieval/ndcg_10"]["num_samples"] == 2


def test_mistakes(workplace: Path, folder: Path, cli: Cli):
    model = str(workplace / "runs" / "small" / "model")
    for flags, field in (
        (["--suite", "retrieval"], "--data"),
        (["--suite", "retrieval,mlm", "--data", str(folder)], "--suite retrieval"),
        (["--suite", "retrieval", "--data", str(folder / "qrels")], "corpus.jsonl"),
    ):
        assert field in cli.refuse("evaluate", model, *flags)


@pytest.mark.parametrize(
    ("copies", "line"), [(0, ""), (1, "1 of 4 document repeats"), (3, "3 of 6 ")]
)
def test_documents_that_repeat_a_text_are_counted(copies: int, line: str, folder: Path):
    more = [{**DOCUMENTS[n], "_id": f"copy {n}"} for n in range(copies)]
    write_lines(folder / "corpus.jsonl.gz", [*DOCUMENTS, *more])
    said = describe_repeated(read_collection(folder))
    assert said.startswith(line)
    assert bool(said) == bool(copies)
