"""Rows to mask, and what came of it as tables that are easy to count."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.data.config import MaskingConfig
from maskwright.data.counter_rng import derive_keys
from maskwright.data.masking import IGNORED, MaskedRows, Masker
from tests.helpers import vocabulary

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Outcome:
    """One call of the masker: [R, L] clean ids, masked ids, and which were hidden."""

    clean: Ids
    masked: MaskedRows
    hidden: NDArray[np.bool_]

    @property
    def counts(self) -> Ids:
        """[R] hidden tokens of each row."""
        return self.hidden.sum(axis=1)


def hidden_flags(masked: MaskedRows, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """[R, L]: which positions have a label."""
    hidden = np.zeros(shape, dtype=bool)
    rows, slots = np.nonzero(masked.labels != IGNORED)
    hidden[rows, masked.positions[rows, slots]] = True
    return hidden


def mask_rows(
    config: MaskingConfig,
    ids: Ids,
    word_starts: NDArray[np.bool_] | None = None,
    *,
    rate: float | None = None,
    masker: Masker | None = None,
) -> Outcome:
    """Masks rows as rows 0, 1, ... of epoch 0 of seed 0."""
    masker = masker or Masker(config, vocabulary())
    starts = np.ones(ids.shape, dtype=bool) if word_starts is None else word_starts
    keys = derive_keys(0, 0, np.arange(len(ids)))
    masked = masker.mask(ids, starts, keys, config.rate if rate is None else rate)
    return Outcome(ids, masked, hidden_flags(masked, ids.shape))


def assert_uniform(counts: NDArray[np.int64], *, tolerance: float = 5.0) -> None:
    """Chi-square of equal shares, at `tolerance` standard deviations above its mean."""
    expected, freedom = counts.mean(), len(counts) - 1
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < freedom + tolerance * (2 * freedom) ** 0.5, counts


def assert_share(hits: int, total: int, share: float) -> None:
    """`hits` of `total` agrees with `share` within five binomial standard deviations."""
    deviation = (total * share * (1 - share)) ** 0.5
    assert abs(hits - total * share) <= 5 * deviation + 1e-9, (hits / total, share)
