"""The scores that a run shows: in the terminal, summaries, model cards, reports and comparisons.

`ACCURACY` is the accuracy on [MASK]. A tenth of the masked tokens keep their token as input, so a
model can copy them, and no baseline does. The accuracy over all masked tokens, ``masked_accuracy``,
is recorded beside it and not shown. This module does not import torch, so that reports can use it.
"""

import math
from dataclasses import dataclass


def divide(total: float, count: float) -> float:
    """Return a mean; NaN of no samples, which is null in metrics.jsonl."""
    return total / count if count else math.nan


@dataclass(frozen=True)
class ScoreLine:
    """The display of a score of validation records; missing scores are omitted.

    Attributes:
        name: its key in a record.
        title: its name in the results of a run and in the model card.
        headline: its name in the one-line summary of a record; empty: it is not shown there.
        baseline: the key of the baseline's score.
        baseline_name: the name of that baseline beside the score and as a column heading.
        by_source: True to show it also for each source of a mixture, from ``name/SOURCE``.
        suite_name: its name in the suite ``mlm``; empty: that suite does not have it.
    """

    name: str
    title: str
    headline: str = ""
    baseline: str = ""
    baseline_name: str = "baseline"
    by_source: bool = False
    suite_name: str = ""


_UNIGRAM = "unigram baseline"
LOSS = ScoreLine(
    "loss",
    "loss (nats)",
    headline="loss",
    baseline="unigram_loss",
    baseline_name=_UNIGRAM,
    by_source=True,
    suite_name="loss",
)
ACCURACY = ScoreLine(
    "seen_mask_accuracy",
    "accuracy on [MASK]",
    headline="accuracy on [MASK]",
    baseline="unigram_accuracy",
    baseline_name=_UNIGRAM,
    by_source=True,
    suite_name="seen_mask/masked_accuracy",
)
ACCURACY_TOP5 = ScoreLine(
    "seen_mask_accuracy_top5",
    "accuracy on [MASK], top 5",
    suite_name="seen_mask/masked_accuracy_top5",
)
MASKED_LM_SCORES = (LOSS, ACCURACY, ACCURACY_TOP5)
