"""The suite ``sts``: the correlation of vector cosines with human similarity scores.

Data is a local table in the format of the STS benchmark. Texts are embedded as by ``maskwright
embed``. The baseline is the cosine of word counts.
"""

import math
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import CorpusError
from maskwright.evaluation.suite_retrieval import split_words
from maskwright.evaluation.suites import Request, Suite, describe_files, mark_fast
from maskwright.finetuning.metrics import compute_metric
from maskwright.finetuning.table_files import list_names, read_columns
from maskwright.runs.evaluation_file import Score, SuiteResult

_USUAL_COLUMNS = ("sentence1", "sentence2", "score")


def read_graded_pairs(path: Path) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """Return first texts, second texts and scores of a table.

    The columns are ``sentence1``, ``sentence2`` and ``score``; in a CSV file without a header, the
    first three.

    Raises:
        CorpusError: as `read_columns`, or all scores are equal.
    """
    has_names = path.name.removesuffix(".gz").endswith((".jsonl", ".parquet", ".tsv"))
    has_names = has_names or {*_USUAL_COLUMNS} <= {*list_names(path)}
    columns = {role: role if has_names else place for place, role in enumerate(_USUAL_COLUMNS)}
    rows = list(read_columns(path, columns))
    pairs, scores = [row.texts for row in rows], np.array([row.number("score") for row in rows])
    if len(set(scores.tolist())) < 2:
        raise CorpusError(f"{path}: all scores are the same. Check the column score.")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs], scores


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
    settings = {"baseline": "cosine of word counts", "num_cut": embed.num_cut}
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
