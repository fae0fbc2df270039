"""The suite ``mlm``: every figure of masked language modelling on pinned masks.

Formulas and names are explained in docs/evaluation.md.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import InputError
from maskwright.evaluation.intervals import NUM_RESAMPLES, RESAMPLING_SEED
from maskwright.evaluation.masked_detail import (
    NUM_CONFIDENCE_BINS,
    SEEN,
    TOPS,
    MaskedTables,
    measure_masked_lm,
)
from maskwright.evaluation.pinned import PINNED_MASKING, PINNED_SEED, PinnedText
from maskwright.evaluation.scores import SuiteResult
from maskwright.evaluation.sums import Figure, Formula, Sums, ratio
from maskwright.model.pretraining import MaskedLanguageModel


def evaluate_mlm(
    model: MaskedLanguageModel,
    text: PinnedText,
    counts: NDArray[np.int64],
    characters: NDArray[np.int64],
    data: dict[str, Any],
) -> SuiteResult:
    """All scores of a model on a text; arguments as for `measure_masked_lm`.

    Args:
        data: name and fingerprint of the text, for the result.

    Raises:
        InputError: the text is so short that nothing of it is hidden.
    """
    return describe_tables(measure_masked_lm(model, text, counts, characters), text, data)


def describe_tables(tables: MaskedTables, text: PinnedText, data: dict[str, Any]) -> SuiteResult:
    """The scores of what `measure_masked_lm` gave for a text."""
    if not tables.tokens.totals["count"]:
        raise InputError(f"{data['name']} is too short: no token of it is hidden. Give more text.")
    settings = {
        "masks_sha256": tables.masks,
        "seed": PINNED_SEED,
        "rate": PINNED_MASKING.rate,
        "corruption": [0.8, 0.1, 0.1],
        "mask_only_corruption": [1.0, 0.0, 0.0],
        "whole_words_corruption": [1.0, 0.0, 0.0],
        "max_seq_length": text.config.max_seq_length,
        "special_tokens": text.config.special_tokens,
        "packed": text.config.packed,
        "num_rows": len(tables.tokens.values),
        "interval": f"bootstrap over rows, {NUM_RESAMPLES} resamples, seed {RESAMPLING_SEED}",
    }
    figures = [*FIGURES, *group_figures(tables.num_decades)]
    scores = [*tables.tokens.score(figures), *tables.mask_only.score(MASK_ONLY_FIGURES)]
    scores += tables.words.score(WORD_FIGURES)
    return SuiteResult("mlm", data, settings, tuple(scores))


def _perplexity(loss: str) -> Formula:
    return lambda sums: np.exp(sums[loss] / sums["count"])


def _bits_per_character(loss: str) -> Formula:
    return lambda sums: sums[loss] / sums["characters"] / math.log(2)


def _calibration_error(sums: Sums) -> np.ndarray:
    """Expected calibration error (Guo et al. 2017, arXiv 1706.04599)."""
    bins = range(NUM_CONFIDENCE_BINS)
    gaps = [abs(sums[f"{b}_confidence"] - sums[f"{b}_right"]) for b in bins]
    return sum(gaps[1:], gaps[0]) / sums["count"]


def _accuracy_name(k: int) -> str:
    return "masked_accuracy" if k == 1 else f"masked_accuracy_top{k}"


BITS_PER_CHARACTER = Figure(
    "bits_per_character",
    _bits_per_character("text_loss"),
    "characters",
    _bits_per_character("unigram_text_loss"),
)

FIGURES = (
    Figure("loss", ratio("loss", "count"), "count", ratio("unigram_loss", "count")),
    Figure("perplexity", _perplexity("loss"), "count", _perplexity("unigram_loss")),
    BITS_PER_CHARACTER,
    *(
        Figure(
            _accuracy_name(k),
            ratio(f"top{k}", "count"),
            "count",
            ratio(f"unigram_top{k}", "count"),
        )
        for k in TOPS
    ),
    Figure(
        "mean_reciprocal_rank",
        ratio("reciprocal_rank", "count"),
        "count",
        ratio("unigram_reciprocal_rank", "count"),
    ),
    # A sum of magnitudes: noise only adds to it, and resampling adds noise to noise.
    Figure("calibration_error", _calibration_error, "count", has_interval=False),
)

MASK_ONLY_FIGURES = tuple(
    Figure(
        f"mask_only/{title}",
        ratio(name, "count"),
        "count",
        ratio(f"unigram_{name}", "count"),
    )
    for title, name in (
        ("loss", "loss"),
        ("masked_accuracy", "top1"),
        ("masked_accuracy_top5", "top5"),
    )
)

WORD_FIGURES = (
    Figure(
        "whole_words/word_accuracy",
        ratio("words_right", "words"),
        "words",
        ratio("unigram_words_right", "words"),
    ),
    Figure(
        "whole_words/split_word_accuracy",
        ratio("split_words_right", "split_words"),
        "split_words",
    ),
    Figure(
        "whole_words/masked_accuracy",
        ratio("top1", "count"),
        "count",
        ratio("unigram_top1", "count"),
    ),
    Figure("whole_words/loss", ratio("loss", "count"), "count"),
)


def group_figures(num_decades: int) -> list[Figure]:
    """Accuracy and loss by what the model sees, and by the tokens' training counts."""
    groups = {f"seen_{seen}": seen for seen in SEEN}
    groups |= {f"frequency_1e{decade}": str(decade) for decade in range(num_decades)}
    return [
        Figure(
            f"{title}/{what}",
            ratio(f"{name}_{column}", f"{name}_count"),
            f"{name}_count",
            ratio(f"{name}_unigram_{column}", f"{name}_count"),
        )
        for title, name in groups.items()
        for what, column in (("masked_accuracy", "top1"), ("loss", "loss"))
    ]
