"""The suites of text vectors: ``retrieval`` finds documents, ``sts`` compares pairs of texts.

Data is local: of ``retrieval`` in the format of BEIR (Thakur et al., 2021), of ``sts`` a table in
the format of the STS benchmark, whose human similarity scores the cosines should correlate with.
Texts are embedded and compared as by ``maskwright search``, those of ``sts`` as by ``maskwright
embed``, as the evaluators of sentence-transformers do. The baselines, BM25 and the cosine of word
counts, need no training. Q queries, N documents.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.console import tell
from maskwright.corpus.column_roles import looks_like_header
from maskwright.corpus.table_files import (
    TableRow,
    list_names,
    open_lines,
    read_columns,
    read_objects,
)
from maskwright.errors import CorpusError, InputError
from maskwright.evaluation.intervals import describe_bootstrap, mean_interval
from maskwright.evaluation.suites import Request, Suite, describe_files
from maskwright.finetuning.metrics import compute_metric
from maskwright.finetuning.predict import Predictor
from maskwright.inference.embed import Embedder
from maskwright.model_folder.sentence_modules import DOCUMENT, QUERY
from maskwright.runs.evaluation_file import Score, SuiteResult
from maskwright.tokenizer.lost import check_known

_MAX_RANKED = 100  # documents in a ranking
_WORD = re.compile(r"\w+")
_SPLITS = ("test", "dev", "train")

Grades = Mapping[str, Mapping[str, int]]  # query id -> document id -> relevance grade
Ranking = Sequence[str]  # document ids, the best first


@dataclass(frozen=True)
class Collection:
    """A retrieval task: texts by id, and the relevance grades of documents for each query."""

    documents: Mapping[str, str]
    queries: Mapping[str, str]
    grades: Grades
    files: tuple[Path, ...]


def read_collection(folder: Path) -> Collection:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``, plain or ``.gz``.

    Raise InputError if a file is missing; CorpusError if a file is damaged, or no query has a
    relevant document.
    """
    corpus, queries = (_find(folder, f"{name}.jsonl") for name in ("corpus", "queries"))
    qrels = _find(folder, *(f"qrels/{split}.tsv" for split in _SPLITS))
    documents, asked = dict(_read_texts(corpus)), dict(_read_texts(queries))
    columns = {"query": 0, "document": 1, "grade": 2}
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    # BEIR's files name their columns.
    has_header = not next(open_lines(qrels)[1], "").rpartition("\t")[2].strip().isdigit()
    for row in read_columns(qrels, columns, has_header):
        query, document = row.values["query"], row.values["document"]
        if not (grade := row.number("grade")).is_integer():
            raise CorpusError(f"{row.place}: grade = {grade} is not a whole number.")
        if query in asked:  # with documents that the corpus lacks, which cannot be found
            grades[query][document] = max(0, int(grade))
    answered = {query: found for query, found in grades.items() if max(found.values()) > 0}
    relevant = {name for found in answered.values() for name, grade in found.items() if grade}
    if not documents.keys() & relevant:
        raise CorpusError(f"{qrels}: no query has a relevant document. Check the ids.")
    chosen = {query: asked[query] for query in answered}
    return Collection(documents, chosen, answered, (corpus, queries, qrels))


def _find(folder: Path, *names: str) -> Path:
    for path in (folder / f"{name}{end}" for name in names for end in ("", ".gz")):
        if path.is_file():
            return path
    raise InputError(f"{folder} has no {names[0]}. Give a folder in the format of BEIR.")


def _read_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the id and the text (with the title before it) of each line."""
    known = set[str]()
    for place, record in read_objects(*open_lines(path)):
        name, title, text = (record.get(key) for key in ("_id", "title", "text"))
        are_texts = isinstance(text, str) and isinstance(title, str | None)
        if name is None or str(name) in known or not are_texts:
            rule = 'is not {"_id": …, "text": …} with an id of its own'
            raise CorpusError(f"{place} {rule}. Correct it.")
        known.add(str(name))
        yield str(name), f"{title or ''} {text}".strip()


def rank_by_vectors(embed: Embedder, task: Collection) -> dict[str, Ranking]:
    """Return the documents of each query ranked by the similarity of vectors."""
    found = embed.stream(task.documents.values(), prompt_name=DOCUMENT)
    vectors = embed.comparable(np.concatenate(list(found)))
    texts = embed.comparable(embed(list(task.queries.values()), prompt_name=QUERY))
    places = _list_places(task.documents)
    # One query after the other: all similarities together may not fit in memory.
    asked = zip(task.queries, texts, strict=True)
    return {
        query: _rank(task.grades[query], query, places, embed.compare(vectors, text[None])[:, 0])
        for query, text in asked
    }


def _list_places(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _rank(
    grades: Mapping[str, int],
    query: str,
    places: Mapping[str, int],
    scores: NDArray[np.floating[Any]],
    above: float = -math.inf,
) -> Ranking:
    """Return the best documents without that of the query's id, unless it is relevant, as BEIR.

    Of equal scores the less relevant is first, so that a model gains nothing by ties.

    Args:
        places: the place of each document in `scores` [N].
        above: the documents of lower scores, or this one, are not found.
    """
    gains = np.zeros(len(scores), np.int64)
    for name in grades.keys() & places.keys():
        gains[places[name]] = grades[name]
    best: list[int] = np.lexsort((gains, -scores))[: _MAX_RANKED + 1].tolist()
    names = list(places)
    found = (names[place] for place in best if scores[place] > above)
    kept = [name for name in found if name != query or grades.get(name, 0) > 0]
    return kept[:_MAX_RANKED]


def rank_by_words(task: Collection, k: float = 1.2, b: float = 0.75) -> dict[str, Ranking]:
    """Return the documents of each query ranked by BM25 (Robertson and Zaragoza, 2009)."""
    places = _list_places(task.documents)
    counts = [Counter(split_words(text)) for text in task.documents.values()]
    lengths = np.array([max(1, count.total()) for count in counts], np.float64)
    postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, count in enumerate(counts):
        for word, times in count.items():
            postings[word].append((number, times))
    damping = k * (1 - b + b * lengths / lengths.mean())
    rankings: dict[str, Ranking] = {}
    for query, text in task.queries.items():
        scores = np.zeros(len(places))
        for word in split_words(text):
            found = postings.get(word, [])
            rarity = math.log(1 + (len(places) - len(found) + 0.5) / (len(found) + 0.5))
            for number, times in found:
                scores[number] += rarity * times * (k + 1) / (times + damping[number])
        rankings[query] = _rank(task.grades[query], query, places, scores, above=0)
    return rankings


def split_words(text: str) -> list[str]:
    """Return the words of a text in lowercase."""
    return _WORD.findall(text.lower())


def measure_ndcg(grades: Mapping[str, int], ranking: Ranking, depth: int = 10) -> float:
    """Return the discounted cumulative gain at `depth` relative to that of the ideal ranking."""

    def sum_gains(gains: Sequence[int]) -> float:
        return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains[:depth]))

    best = sum_gains(sorted(grades.values(), reverse=True))
    return sum_gains([grades.get(name, 0) for name in ranking]) / best


def measure_recall(grades: Mapping[str, int], ranking: Ranking, depth: int) -> float:
    """Return the share of relevant documents among the first `depth` documents."""
    answers = {name for name, grade in grades.items() if grade > 0}
    return len(answers.intersection(ranking[:depth])) / len(answers)


def measure_reciprocal_rank(grades: Mapping[str, int], ranking: Ranking, depth: int = 10) -> float:
    """Return 1 / rank of the first relevant document; 0 if the rank is above `depth`."""
    places = (n for n, name in enumerate(ranking[:depth], 1) if grades.get(name, 0) > 0)
    return 1 / next(places, math.inf)


def open_ranker(folder: Path, device: str) -> Predictor:
    """Open a model of ``finetune --task ranking``; raise InputError for any other."""
    predict = Predictor(folder, device)
    if predict.loaded.problem != "regression" or predict.loaded.num_texts == 1:
        raise InputError(f"--rerank = {folder} does not score pairs. Train it by --task ranking.")
    return predict


def rerank(
    predict: Predictor, task: Collection, rankings: Mapping[str, Ranking]
) -> dict[str, Ranking]:
    """Return each ranking in the order of the scores of a cross-encoder."""
    found: dict[str, Ranking] = {}
    for query, ranking in rankings.items():
        pairs = [(task.queries[query], task.documents[name]) for name in ranking]
        scores = np.array([answer.label for answer in predict(pairs)], np.float64)
        found[query] = _rank(task.grades[query], query, _list_places(ranking), scores)
    return found


_MEASURES: dict[str, Callable[[Mapping[str, int], Ranking], float]] = {
    "ndcg_10": measure_ndcg,
    "recall_10": partial(measure_recall, depth=10),
    "recall_100": partial(measure_recall, depth=100),
    "mrr_10": measure_reciprocal_rank,
}


def score_rankings(
    prefix: str, grades: Grades, rankings: Mapping[str, Ranking], baseline: Mapping[str, Ranking]
) -> tuple[Score, ...]:
    """Return the mean of each measure over the queries, with intervals and the baseline's.

    The name of a score is `prefix`, a slash, and that of the measure.
    """
    scores: list[Score] = []
    for name, measure in _MEASURES.items():
        values, others = (
            np.array([measure(grades[query], found[query]) for query in grades])
            for found in (rankings, baseline)
        )
        low, high = mean_interval(values) or (None, None)
        mean, other = float(values.mean()), float(others.mean())
        scores.append(Score(f"{prefix}/{name}", mean, low, high, len(values), other))
    return tuple(scores)


def _score_retrieval(request: Request) -> SuiteResult:
    path = request.need_file("retrieval")
    task, embed = read_collection(path), request.make_embedder()
    check_known(embed.tokenizer, task.documents.values(), str(path))
    if line := describe_repeated(task):
        tell(line)
    rankings, by_words = rank_by_vectors(embed, task), rank_by_words(task)
    scores = score_rankings("retrieval", task.grades, rankings, by_words)
    settings = {
        "baseline": "BM25",
        "interval": describe_bootstrap("queries"),
        "split": task.files[-1].name.partition(".")[0],
        "pooling": embed.pooling,
        "num_cut": embed.num_cut,
    }
    if request.rerank is not None:
        settings |= {"reranker": str(request.rerank), "reranked_documents": _MAX_RANKED}
        predict = open_ranker(request.rerank, str(request.model.device))
        searches = {"retrieval/reranked": rankings, "retrieval/reranked_bm25": by_words}
        for prefix, found in searches.items():
            again = rerank(predict, task, found)
            scores += score_rankings(prefix, task.grades, again, by_words)
    data = describe_files(path, task.files, len(task.documents))
    return SuiteResult("retrieval", data, settings | {"fast": False}, scores)


def describe_repeated(task: Collection) -> str:
    """Return a line about documents of the same text under several ids; "" if there are none."""
    count = len(task.documents) - len({" ".join(text.split()) for text in task.documents.values()})
    if not count:
        return ""
    noun = "document repeats" if count == 1 else "documents repeat"
    rule = f"{count:,} of {len(task.documents):,} {noun} the text of another"
    return f"{rule}: one of them is wrong where only the other is relevant. Remove them."


def _check_retrieval(request: Request) -> None:
    read_collection(request.need_file("retrieval"))
    if request.rerank is not None:
        open_ranker(request.rerank, str(request.model.device))


RETRIEVAL = Suite(
    name="retrieval",
    needs="files",
    check=_check_retrieval,
    score=_score_retrieval,
    headlines=(
        "retrieval/ndcg_10",
        "retrieval/reranked/ndcg_10",
        "retrieval/reranked_bm25/ndcg_10",
    ),
)


_COLUMNS = ("sentence1", "sentence2", "score")
_ORIGINAL_COLUMNS = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")


def read_graded_pairs(path: Path) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """Return first texts, second texts and scores of a table.

    The columns are ``sentence1``, ``sentence2`` and ``score``; in a CSV or TSV file without a
    header, the first three, or those of ``sts-dev.csv``.

    Raise CorpusError as `read_columns`, and if a column is missing or all scores are equal.
    """
    rows = list(_read_rows(path))
    pairs, scores = [row.texts for row in rows], np.array([row.number("score") for row in rows])
    if len(set(scores.tolist())) < 2:
        raise CorpusError(f"{path}: all scores are the same in {len(rows)} pairs. Check them.")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs], scores


def _read_rows(path: Path) -> Iterable[TableRow]:
    names = list_names(path)
    if {*_COLUMNS} <= {*names}:
        return read_columns(path, {name: name for name in _COLUMNS})
    if {".csv", ".tsv"} & {*path.suffixes} and not looks_like_header([names]):
        if next(open_lines(path)[1], "").count("\t") + 1 >= len(_ORIGINAL_COLUMNS):
            return _read_original(path)
        if len(names) >= len(_COLUMNS):
            return read_columns(path, {name: number for number, name in enumerate(_COLUMNS)})
    raise CorpusError(
        f"{path} has no columns {', '.join(_COLUMNS)}: it has {', '.join(names[:20])}. Rename them."
    )


def _read_original(path: Path) -> Iterator[TableRow]:
    """Yield the rows of ``sts-dev.csv``: separated by tabs, quotation marks are text."""
    name, lines = open_lines(path)
    for number, line in (pair for pair in enumerate(lines, start=1) if pair[1].strip()):
        values: dict[str, str] = dict(zip(_ORIGINAL_COLUMNS, line.split("\t"), strict=False))
        if len(values) < len(_ORIGINAL_COLUMNS):
            raise CorpusError(f"{name}:{number} has {len(values)} columns, not 7. Correct it.")
        yield TableRow(f"{name}:{number}", values)


def compare_words(first: str, second: str) -> float:
    """Return the cosine of the word counts of two texts."""
    ours, theirs = Counter(split_words(first)), Counter(split_words(second))
    product = sum(count * theirs[word] for word, count in ours.items())
    lengths = (sum(count**2 for count in each.values()) for each in (ours, theirs))
    return product / max(1.0, math.sqrt(math.prod(lengths)))


def _score_sts(request: Request) -> SuiteResult:
    path = request.need_file("sts")
    first, second, scores = read_graded_pairs(path)
    embed = request.make_embedder()
    check_known(embed.tokenizer, [*first, *second], str(path))
    pairs = (embed.comparable(embed(texts))[:, None] for texts in (first, second))
    found = embed.compare(*pairs)[:, 0, 0]
    words = np.array([compare_words(a, b) for a, b in zip(first, second, strict=True)])
    spearman, baseline = (compute_metric("spearman", scores, x) for x in (found, words))
    settings = {
        "baseline": "cosine of word counts",
        "pooling": embed.pooling,
        "num_cut": embed.num_cut,
        "fast": False,
    }
    score = Score("sts/spearman", spearman, None, None, len(scores), baseline)
    data = describe_files(path, [path], 2 * len(scores))
    return SuiteResult("sts", data, settings, (score,))


STS = Suite(
    name="sts",
    needs="files",
    check=lambda request: read_graded_pairs(request.need_file("sts")),
    score=_score_sts,
    headlines=("sts/spearman",),
)
