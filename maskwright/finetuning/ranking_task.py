"""The task that orders passages by their relevance to a query: a cross-encoder.

Nogueira and Cho, "Passage Re-ranking with BERT", 2019. N pairs of a query and a passage.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.errors import CorpusError
from maskwright.finetuning.column_roles import LABEL, SECOND, Column
from maskwright.finetuning.embedding import NEGATIVE, find_usual
from maskwright.finetuning.examples import Examples, Row
from maskwright.finetuning.metrics import Scores
from maskwright.finetuning.request import TaskFiles
from maskwright.finetuning.table_files import FIRST, TableRow, list_names, read_columns
from maskwright.finetuning.task import Labels
from maskwright.finetuning.text_tasks import Regression


class Ranking(Regression):
    """The relevance of a passage to a query: binary cross-entropy of a single logit."""

    name = "ranking"
    roles = (FIRST, SECOND, LABEL, NEGATIVE)
    metrics = ("mrr",)
    mistakes_note = "The passages whose score is farthest from their relevance."

    def find_columns(self, train: Path, given: Mapping[str, Column]) -> dict[str, Column]:
        found = super().find_columns(train, given)
        names = list_names(train)
        if LABEL not in given and (NEGATIVE in given or found[LABEL] not in names):
            del found[LABEL]
            if usual := find_usual(NEGATIVE, names):
                found.setdefault(NEGATIVE, usual)
        if SECOND not in found or (LABEL in found) == (NEGATIVE in found):
            raise CorpusError(
                f"{train} needs a query, a passage, and either a label (1: relevant, 0: not) or a "
                "negative passage. Name them with --columns sentence1=… sentence2=… label=…"
            )
        return found

    def read(self, path: Path, files: TaskFiles, skipped: Counter[str] | None) -> list[Row]:
        """Return pairs with a label; a row with a negative passage becomes two pairs."""
        rows: list[Row] = []
        for row in read_columns(path, files.columns, files.has_header, skipped):
            if NEGATIVE not in row.values:
                rows.append(row)
                continue
            values = dict(row.values)
            negative = values.pop(NEGATIVE)
            rows.append(TableRow(row.place, {**values, LABEL: 1}))
            rows.append(TableRow(row.place, {**values, SECOND: negative, LABEL: 0}))
        return rows

    def encode_labels(self, rows: Sequence[Row], labels: Labels) -> NDArray[Any]:
        targets = super().encode_labels(rows, labels)
        for row, target in zip(rows, targets, strict=True):
            if not 0 <= target <= 1:
                assert isinstance(row, TableRow)
                raise CorpusError(f"{row.place}: label = {target:g} must be between 0 and 1")
        return targets

    def normalize(self, targets: NDArray[Any] | list[list[int]]) -> tuple[float, float]:
        return 0.0, 1.0

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits[:, 0], targets)

    def is_right(self, true: Any, found: Any) -> bool:
        return (true > 0.5) == (found > 0)

    def measure_mistake(self, true: Any, found: Any, probability: float | None) -> float:
        return abs(true - (1 + math.tanh(found / 2)) / 2)  # the sigmoid of the logit

    def score(
        self, labels: Labels, metrics: Sequence[str], examples: Examples, predictions: Any
    ) -> Scores:
        queries = [row.texts[0] for row in examples.rows]
        return {"mrr": measure_reciprocal_rank(queries, np.asarray(examples.targets), predictions)}


def measure_reciprocal_rank(
    queries: Sequence[str], relevance: NDArray[Any], scores: NDArray[Any]
) -> float:
    """Return the mean over queries of 1 / rank of the first relevant passage.

    Queries all of whose passages are relevant, or none, do not count. Among equal scores the
    relevant passage comes last.

    Raises:
        CorpusError: no query counts.
    """
    passages: dict[str, list[int]] = defaultdict(list)
    for number, query in enumerate(queries):
        passages[query].append(number)
    ranks: list[int] = []
    for numbers in passages.values():
        found, right = scores[numbers], relevance[numbers] > 0.5
        if 0 < right.sum() < len(right):
            ranks.append(1 + int((found[~right] >= found[right].max()).sum()))
    if not ranks:
        raise CorpusError(
            "no query of the scored examples has both a relevant and another passage, so there is"
            " nothing to rank. Add such examples; finetune takes them as --valid."
        )
    return float(np.mean(1 / np.array(ranks)))
