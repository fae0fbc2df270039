"""95 % confidence intervals: Wilson's for shares, the bootstrap over rows for everything else.

What happens within one row of text is not independent, so rows are drawn anew and not predictions
(a cluster bootstrap, Efron and Tibshirani 1993). Every score here is a function of sums over rows;
so one table of sums a row is all that is needed, and two models are compared on the same draws by
putting their tables side by side.

R rows, S sums of a row, B draws.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NUM_RESAMPLES = 1000
RESAMPLING_SEED = 20_181_011
_Z = 1.959963984540054  # 97.5 % of a normal distribution lie below
_DRAWS_AT_ONCE = 1 << 22


def wilson_interval(num_right: float, num_samples: int) -> tuple[float, float]:
    """The interval of a share of independent samples (Wilson 1927); ties may count one half.

    Unlike the normal approximation it stays within 0 and 1, and is right for few samples.
    """
    if num_samples == 0:
        return 0.0, 1.0
    n, share = num_samples, num_right / num_samples
    center = share + _Z**2 / (2 * n)
    spread = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n))
    scale = 1 + _Z**2 / n
    # What rounding takes beyond the share itself, at 0 and at 1, is given back.
    return min((center - spread) / scale, share), max((center + spread) / scale, share)


def resample_sums(
    table: Floats, num_resamples: int = NUM_RESAMPLES, seed: int = RESAMPLING_SEED
) -> Floats:
    """The sums over as many rows as there are, drawn with replacement: [R, S] -> [B, S].

    Tables of as many rows are resampled alike, hence also the two halves of a paired comparison.
    """
    generator = np.random.default_rng(seed)
    num_rows = len(table)
    sums = np.zeros((num_resamples, table.shape[1]))
    if num_rows == 0:
        return sums
    at_once = max(1, _DRAWS_AT_ONCE // num_rows)
    for start in range(0, num_resamples, at_once):
        count = min(at_once, num_resamples - start)
        times = np.zeros((count, num_rows))
        for draw in times:
            draw += np.bincount(generator.integers(0, num_rows, num_rows), minlength=num_rows)
        sums[start : start + count] = times @ table
    return sums


def percentile_interval(values: Floats) -> tuple[float, float] | None:
    """Where the middle 95 % of the resampled values lie.

    None if a draw had nothing to divide, and where all rows say the same: then rows drawn anew tell
    nothing of rows not seen.
    """
    if not len(values) or not np.isfinite(values).all():
        return None
    low, high = np.quantile(values, [0.025, 0.975])
    return (float(low), float(high)) if low < high else None


def mean_interval(values: Floats) -> tuple[float, float] | None:
    """The bootstrap interval of the mean of independent values: [R]."""
    sums = resample_sums(np.asarray(values, np.float64)[:, None])
    return percentile_interval(sums[:, 0] / max(len(values), 1))
