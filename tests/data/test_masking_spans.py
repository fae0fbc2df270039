from typing import Literal

import numpy as np
import pytest

from maskwright.data.config import MaskingConfig
from maskwright.data.counter_rng import derive_keys
from maskwright.data.masking import SpanMasking, choose_masked
from tests.data.masking_helpers import assert_share, assert_uniform, mask_rows
from tests.helpers import CLS, PAD, SEP

Lengths = Literal["geometric", "uniform"]


def run_lengths(hidden: np.ndarray) -> np.ndarray:
    """Lengths of the hidden runs of one row, taken as a circle."""
    row = np.roll(hidden, -int(np.argmin(hidden)))  # begins with a visible token
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return edges[1::2] - edges[::2]


def test_geometric_lengths_fall_by_a_fifth_and_end_at_the_longest() -> None:
    lengths = SpanMasking("geometric", 10).draw_lengths(derive_keys(np.arange(400)), np.arange(100))
    expected = 0.8 ** np.arange(10)
    expected /= expected.sum()
    for length, share in enumerate(expected, start=1):
        assert_share(int((lengths == length).sum()), lengths.size, float(share))
    assert lengths.mean() == pytest.approx(3.8, abs=0.05)  # as in SpanBERT


def test_uniform_lengths_are_equally_likely() -> None:
    lengths = SpanMasking("uniform", 6).draw_lengths(derive_keys(np.arange(400)), np.arange(100))
    assert_uniform(np.bincount(lengths.ravel(), minlength=7)[1:])


@pytest.mark.parametrize("lengths", ["geometric", "uniform"])
def test_the_one_span_of_a_small_quota_is_whole(lengths: Lengths) -> None:
    strategy = SpanMasking(lengths, 5)
    keys, flags = derive_keys(np.arange(2000)), np.ones((2000, 50), dtype=bool)
    hidden = choose_masked(strategy, keys, flags, flags, 3 / 50)
    assert hidden.sum(axis=1).tolist() == [3] * 2000
    runs = [run_lengths(row) for row in hidden]
    # One span of three or more, cut at three; else a shorter one and the beginning of another.
    drawn = strategy.draw_lengths(keys, np.arange(50))
    share_long = float((drawn >= 3).mean())
    assert sum(run.max() == 3 for run in runs) / 2000 >= share_long - 0.05


def test_no_run_is_longer_than_its_spans_at_a_low_rate() -> None:
    outcome = mask_rows(MaskingConfig(strategy="spans", max_span_length=3), np.full((500, 100), 9))
    longest = [int(run_lengths(row).max()) for row in outcome.hidden]
    # Neighbouring spans may touch, but hardly three of them.
    assert np.mean(np.array(longest) <= 6) > 0.9
    assert max(longest) >= 3


def test_spans_hide_neighbours_together() -> None:
    spans = mask_rows(MaskingConfig(strategy="spans"), np.full((2000, 64), 9)).hidden
    tokens = mask_rows(MaskingConfig(strategy="tokens"), np.full((2000, 64), 9)).hidden
    both = [float((h[:, 1:] & h[:, :-1]).sum() / h[:, 1:].sum()) for h in (spans, tokens)]
    assert both[0] > 0.55
    assert both[1] < 0.2


def test_spans_of_one_token_are_single_tokens() -> None:
    strategy = SpanMasking("geometric", 1)
    keys, flags = derive_keys(np.arange(50)), np.ones((50, 30), dtype=bool)
    times = strategy.draw_times(keys, flags, flags)
    assert len(np.unique(times)) == times.size


def test_a_span_longer_than_the_row_is_no_trouble() -> None:
    config = MaskingConfig(rate=0.5, strategy="spans", span_lengths="uniform", max_span_length=40)
    outcome = mask_rows(config, np.full((4000, 8), 9))
    assert outcome.counts.tolist() == [4] * 4000
    assert_uniform(outcome.hidden.sum(axis=0))


def test_edges_between_special_tokens_are_hidden_like_the_middle() -> None:
    ids = np.full((30_000, 24), 9)
    special = [0, 9, 10, 21, 22, 23]
    ids[:, special] = [CLS, SEP, CLS, SEP, PAD, PAD]
    counts = mask_rows(MaskingConfig(strategy="spans"), ids).hidden.sum(axis=0)
    assert counts[special].sum() == 0
    assert_uniform(np.delete(counts, special))
