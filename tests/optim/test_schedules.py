from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.optim.config import OptimConfig
from maskwright.optim.schedules import learning_rate_scale

Schedule = Literal["linear", "cosine", "wsd"]
schedules = st.sampled_from(["linear", "cosine", "wsd"])
shares = st.floats(0, 1)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # at 0, half the warm-up, its end, the middle of the run, three quarters, the end, beyond
        ("linear", [0, 0.5, 1, 0.1 + 0.9 * 0.5 / 0.8, 0.1 + 0.9 * 0.25 / 0.8, 0.1, 0.1]),
        ("cosine", [0, 0.5, 1, 0.1 + 0.9 * 0.691342, 0.1 + 0.9 * 0.222215, 0.1, 0.1]),
        ("wsd", [0, 0.5, 1, 1, 0.1 + 0.9 * 0.625, 0.1, 0.1]),
    ],
)
def test_schedules_at_their_corners(schedule: Schedule, expected: list[float]) -> None:
    config = OptimConfig(schedule=schedule, warmup_share=0.2, decay_share=0.4, final_share=0.1)
    at = [0, 0.1, 0.2, 0.5, 0.75, 1, 1.5]
    assert [learning_rate_scale(config, progress) for progress in at] == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_no_warm_up_begins_at_the_peak(schedule: Schedule) -> None:
    config = OptimConfig(schedule=schedule, warmup_share=0.0)
    assert learning_rate_scale(config, 0) == 1


def test_nothing_but_warm_up_and_no_decay_at_all() -> None:
    rising = OptimConfig(schedule="linear", warmup_share=1.0)
    assert [learning_rate_scale(rising, p) for p in (0, 0.5, 1)] == [0, 0.5, 1]
    flat = OptimConfig(warmup_share=0.0, decay_share=0.0)
    assert [learning_rate_scale(flat, p) for p in (0, 0.5, 1)] == [1, 1, 1]


@given(schedules, shares, shares, shares)
def test_rates_stay_between_0_and_the_peak_without_a_jump(
    schedule: Schedule, warmup: float, decay: float, final: float
) -> None:
    warmup, decay = max(warmup, 0.05), max(decay, 0.05)
    if warmup + decay > 1:
        warmup, decay = warmup / (warmup + decay + 1e-6), decay / (warmup + decay + 1e-6)
    config = OptimConfig(
        schedule=schedule, warmup_share=warmup, decay_share=decay, final_share=final
    )
    scales = [learning_rate_scale(config, i / 1000) for i in range(1001)]
    assert all(0 <= scale <= 1 for scale in scales)
    steepest = 0.001 * 3.2 / min(warmup, decay, 1 - warmup)
    assert all(abs(a - b) <= steepest for a, b in pairwise(scales))
