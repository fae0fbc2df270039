"""The suite ``sts``: the correlation of vector cosines with human similarity scores.

Data is a local table in the format of the STS benchmark. Texts are embedded as by ``maskwright
embed``. The baseline is the cosine of word counts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import CorpusError
from maskwright.evaluation.suite_retrieval import split_words
from maskwright.evaluation.suites import Request, Suite, describe_files, mark_fast
from maskwright.finetuning.column_roles import looks_like_header
from maskwright.finetuning.metrics import compute_metric
from maskwright.finetuning.table_files import TableRow, list_names, open_lines, read_columns
from maskwright.runs.evaluation_file import Score, SuiteResult

_COLUMNS = ("sentence1", "sentence2", "score")
_ORIGINAL_COLUMNS = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")


def read_graded_pairs(path: Path) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """Return first texts, second texts and scores of a table.

    The columns are ``sentence1``, ``sentence2`` and ``score``; in a CSV or TSV file without a
    header, the first three, or those of ``sts-dev.csv``.

    Raises:
        CorpusError: as `read_columns`, a column is missing, or all scores are equal.
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
    cosines = (embed(first) * embed(second)).sum(1)
    words = np.array([compare_words(a, b) for a, b in zip(first, second, strict=True)])
    spearman, baseline = (compute_metric("spearman", scores, x) for x in (cosines, words))
    settings = {
        "baseline": "cosine of word counts",
        "pooling": embed.pooling,
        "num_cut": embed.num_cut,
    }
    score = Score("sts/spearman", spearman, None, None, len(scores), baseline)
    data = describe_files(path, [path], 2 * len(scores))
    return mark_fast(SuiteResult("sts", data, settings, (score,)), False)


SUITE = Suite(
    name="sts",
    needs="files",
    check=lambda request: read_graded_pairs(request.need_file("sts")),
    score=_score_sts,
    headlines=("sts/spearman",),
)
