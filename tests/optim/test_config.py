import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.errors import ConfigError
from maskwright.optim.config import OptimConfig, ScheduleName, learning_rate_scale

ALL: tuple[ScheduleName, ...] = ("linear", "cosine", "wsd", "wsd_sqrt", "onecycle", "noam")
FALLING: tuple[ScheduleName, ...] = ("linear", "cosine", "wsd", "wsd_sqrt", "onecycle")
shares = st.floats(0, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate = 0.0 must be above 0"),
        ({"muon_learning_rate": -1.0}, "muon_learning_rate = -1.0 must be above 0"),
        ({"weight_decay": -0.1}, "weight_decay = -0.1 must not be negative"),
        ({"beta2": 1.0}, "beta2 = 1.0 must be in [0, 1)"),
        ({"warmup_share": 1.1}, "warmup_share = 1.1 must be between 0 and 1"),
        ({"initial_share": -0.1}, "initial_share = -0.1 must be between 0 and 1"),
        ({"schedule": "noam", "warmup_share": 0.0}, "warmup_share = 0.0 must be above 0 for noam"),
        ({"schedule": "noam", "final_share": 0.1}, "final_share = 0.1 has no effect"),
        ({"newton_schulz_steps": 0}, "newton_schulz_steps = 0 must be at least 1"),
        ({"warmup_share": 0.6, "decay_share": 0.5}, "decay_share = 0.5 and warmup_share = 0.6"),
    ],
)
def test_values_that_break_a_rule(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OptimConfig(**values)
    assert message in str(caught.value)


def test_the_decay_share_is_for_wsd_alone() -> None:
    assert OptimConfig(schedule="cosine", warmup_share=0.6, decay_share=0.5).warmup_share == 0.6


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # at 0, half the warm-up, its end, the middle of the run, three quarters, the end, beyond
        ("linear", [0, 0.5, 1, 0.1 + 0.9 * 0.5 / 0.8, 0.1 + 0.9 * 0.25 / 0.8, 0.1, 0.1]),
        ("cosine", [0, 0.5, 1, 0.1 + 0.9 * 0.691342, 0.1 + 0.9 * 0.222215, 0.1, 0.1]),
        ("wsd", [0, 0.5, 1, 1, 0.1 + 0.9 * 0.625, 0.1, 0.1]),
        ("wsd_sqrt", [0, 0.5, 1, 1, 0.1 + 0.9 * (1 - 0.375**0.5), 0.1, 0.1]),
        ("onecycle", [0, 0.5, 1, 0.1 + 0.9 * 0.691342, 0.1 + 0.9 * 0.222215, 0.1, 0.1]),
    ],
)
def test_schedules_at_their_corners(schedule: ScheduleName, expected: list[float]) -> None:
    config = OptimConfig(schedule=schedule, warmup_share=0.2, decay_share=0.4, final_share=0.1)
    at = [0, 0.1, 0.2, 0.5, 0.75, 1, 1.5]
    assert [learning_rate_scale(config, progress) for progress in at] == pytest.approx(expected)


@pytest.mark.parametrize("schedule", FALLING)
def test_no_warm_up_begins_at_the_peak(schedule: ScheduleName) -> None:
    config = OptimConfig(schedule=schedule, warmup_share=0.0)
    assert learning_rate_scale(config, 0) == 1


def test_nothing_but_warm_up_and_no_decay_at_all() -> None:
    rising = OptimConfig(schedule="linear", warmup_share=1.0)
    assert [learning_rate_scale(rising, p) for p in (0, 0.5, 1)] == [0, 0.5, 1]
    flat = OptimConfig(warmup_share=0.0, decay_share=0.0)
    assert [learning_rate_scale(flat, p) for p in (0, 0.5, 1)] == [1, 1, 1]


def test_onecycle_is_torch_s() -> None:
    """Rates of torch's scheduler, step for step, with its own defaults for start and end."""
    num_steps, peak = 1000, 6e-4
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    # In torch the rise ends at step pct_start * total_steps - 1 of total_steps - 1.
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=peak, total_steps=num_steps + 1, pct_start=301 / 1001,
        cycle_momentum=False,
    )  # fmt: skip
    config = OptimConfig(
        schedule="onecycle", warmup_share=0.3, initial_share=1 / 25, final_share=1 / 25e4
    )
    for step in range(num_steps + 1):
        expected = peak * learning_rate_scale(config, step / num_steps)
        assert scheduler.get_last_lr()[0] == pytest.approx(expected, rel=1e-9)
        optimizer.step()
        if step < num_steps:
            scheduler.step()


def test_noam_is_the_formula_of_the_paper() -> None:
    num_steps, warmup_steps, width = 20_000, 2_000, 128

    def noam(step: int) -> float:
        return width**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)

    config = OptimConfig(schedule="noam", warmup_share=warmup_steps / num_steps)
    peak = noam(warmup_steps)
    assert peak == pytest.approx(1.976e-3, rel=1e-3)
    for step in (1, 100, 1_999, 2_000, 2_001, 8_000, num_steps):
        scale = learning_rate_scale(config, step / num_steps)
        assert peak * scale == pytest.approx(noam(step))


def test_the_triangle_of_cramming() -> None:
    """A line from a quarter of the peak to the peak at 75 % of the budget, then one to 0."""
    config = OptimConfig(schedule="linear", warmup_share=0.75, initial_share=0.25)
    for progress in (0.0, 0.1, 0.5, 0.75, 0.8, 1.0):
        expected = min(0.25 + progress * 0.75 / 0.75, 1 / 0.25 - progress / 0.25)
        assert learning_rate_scale(config, progress) == pytest.approx(expected)


@given(st.sampled_from(ALL), shares, shares, shares)
def test_rates_stay_between_0_and_the_peak_without_a_jump(
    schedule: ScheduleName, warmup: float, decay: float, final: float
) -> None:
    warmup, decay = max(warmup, 0.05), max(decay, 0.05)
    if warmup + decay > 1:
        warmup, decay = warmup / (warmup + decay + 1e-6), decay / (warmup + decay + 1e-6)
    final = 0.0 if schedule == "noam" else final
    config = OptimConfig(
        schedule=schedule,
        warmup_share=warmup,
        decay_share=decay,
        initial_share=final,
        final_share=final,
    )
    scales = [learning_rate_scale(config, i / 1000) for i in range(1001)]
    assert all(0 <= scale <= 1 for scale in scales)
    steepest = 0.001 * 3.2 / min(warmup, decay, 1 - warmup)
    if schedule == "wsd_sqrt":  # a square root begins vertically
        steepest = max(steepest, math.sqrt(0.001 / decay) + 1e-9)
    assert all(abs(a - b) <= steepest for a, b in pairwise(scales))
