import math
from dataclasses import replace
from typing import Any

import pytest

from maskwright.errors import ConfigError
from maskwright.train.config import TrainConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_steps": 0}, "max_steps = 0 must be above 0"),
        ({"max_epochs": 0.0}, "max_epochs = 0.0 must be above 0"),
        ({"max_minutes": -1.0}, "max_minutes = -1.0 must be above 0"),
        ({"micro_batch_tokens": 0}, "micro_batch_tokens = 0 must be above 0"),
        ({"batch_tokens": 0}, "batch_tokens = 0 must be at least 1"),
        ({"valid_seq_length": 4}, "valid_seq_length = 4 must be at least 8. 128 is usual."),
        ({"keep_checkpoints": 0}, "keep_checkpoints = 0 must be at least 1"),
        ({"num_candidates": -1}, "num_candidates = -1 must not be negative"),
        ({"candidate_share": 1.1}, "candidate_share = 1.1 must be between 0 and 1. Try 0.7."),
        ({"checkpoint_words": ("1M", "2m")}, "holds '2m', which is not a count of words"),
        ({"checkpoint_words": ("0M",)}, "holds '0M'"),
        ({"ema_decay": 1.0}, "ema_decay = 1.0 must be between 0 and 1. Try 0.999."),
        ({"grad_clip": -1.0}, "grad_clip = -1.0 must not be negative"),
        ({"seq_length_schedule": ("0:64", "half:128")}, "holds 'half:128', which is not"),
        ({"seq_length_schedule": ("0.1:64",)}, "must rise from 0 to below 1"),
        ({"seq_length_schedule": ("0:64", "1:128")}, "must rise from 0 to below 1"),
        ({"seq_length_schedule": ("0:64", "nan:128")}, "must rise from 0 to below 1"),
        ({"seq_length_schedule": ("0:2",)}, "holds a length below 8"),
        ({"batch_tokens_schedule": ("0:0",)}, "holds a count below 1"),
        ({"batch_tokens_schedule": ("0:64", "0:32")}, "must rise from 0 to below 1"),
    ],
)
def test_values_that_break_a_rule(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**values)
    assert message in str(caught.value)
    assert next(iter(values)) in str(caught.value)


@pytest.mark.parametrize(
    ("budget", "num_tokens", "expected"),
    [
        ({"max_epochs": 2.5}, 1000, 2500),
        ({"max_epochs": 2.5, "max_tokens": 300}, 1000, 300),
        ({"max_epochs": 2.5, "max_tokens": 3000}, 1000, 2500),
        ({"max_epochs": 1e-9}, 1000, 1),
        ({"max_epochs": 1.0}, math.inf, None),
        ({"max_epochs": 1.0, "max_tokens": 300}, math.inf, 300),
        ({"max_tokens": 300}, 1000, 300),
    ],
)
def test_epochs_become_tokens(budget: dict[str, Any], num_tokens: float, expected: int) -> None:
    config = TrainConfig(**budget).count_epochs(num_tokens)
    assert (config.max_tokens, config.max_epochs) == (expected, None)


def test_a_curriculum_goes_from_stage_to_stage() -> None:
    config = TrainConfig(
        batch_tokens_schedule=("0:2048", "0.5:4096"), seq_length_schedule=("0:64", "0.7:128")
    )
    assert [config.batch_tokens_at(p) for p in (-1, 0, 0.4999, 0.5, 1)] == [
        2048,
        2048,
        2048,
        4096,
        4096,
    ]
    assert [config.seq_length_at(p, 256) for p in (0, 0.69, 0.7, 1)] == [64, 64, 128, 128]
    assert config.seq_lengths(256) == [64, 128]


def test_the_mean_of_a_batch_curriculum_counts_the_share_of_each_stage() -> None:
    assert TrainConfig(batch_tokens=512).mean_batch_tokens == 512
    curriculum = TrainConfig(batch_tokens_schedule=("0:1000", "0.2:2000", "0.5:4000"))
    assert curriculum.mean_batch_tokens == pytest.approx(200 + 600 + 2000)


def test_the_shortest_budget_says_how_long_a_run_takes() -> None:
    config = TrainConfig(max_steps=10, batch_tokens=100)
    assert config.estimate_seconds(2.0, None) == 20.0
    assert replace(config, max_minutes=0.1).estimate_seconds(2.0, None) == 6.0
    assert replace(config, max_tokens=500).estimate_seconds(2.0, None) == 10.0
    epochs = replace(config, max_steps=None, max_epochs=2.0)
    assert epochs.estimate_seconds(2.0, 400.0) == 16.0
    assert epochs.estimate_seconds(2.0, None) == math.inf


def test_milestones_are_named_as_written_and_counted_in_words() -> None:
    config = TrainConfig(max_steps=1, checkpoint_words=("750", "20K", "1M"))
    expected = {"chck_750": 750, "chck_20K": 20_000, "chck_1M": 1_000_000}
    assert config.list_milestones() == expected
