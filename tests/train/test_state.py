import json
from typing import Any

import pytest

from maskwright.data.rows import DataPosition
from maskwright.errors import CheckpointError
from maskwright.train.config import TrainConfig
from maskwright.train.state import TrainState

HERE = DataPosition(128, 2, 77)


@pytest.mark.parametrize(
    ("budget", "state", "expected"),
    [
        ({}, {"step": 5}, 0.0),
        ({"max_steps": 10}, {"step": 5}, 0.5),
        ({"max_steps": 10}, {"step": 12}, 1.0),
        ({"max_tokens": 1000}, {"tokens": 250, "step": 99}, 0.25),
        ({"max_minutes": 10.0}, {"seconds": 60.0}, 0.1),
        # the budget that ends first counts
        ({"max_steps": 10, "max_tokens": 1000}, {"step": 5, "tokens": 900}, 0.9),
        ({"max_steps": 10, "max_minutes": 1.0}, {"step": 5, "seconds": 6.0}, 0.5),
        # 2 of 10 minutes went into compiling: 4 of the other 8 are used
        ({"max_minutes": 10.0}, {"seconds": 360.0, "startup_seconds": 120.0}, 0.5),
        # all of it went into compiling
        ({"max_minutes": 1.0}, {"seconds": 70.0, "startup_seconds": 70.0}, 1.0),
    ],
)
def test_progress_is_the_share_of_the_budget(
    budget: dict[str, Any], state: dict[str, Any], expected: float
) -> None:
    config, counts = TrainConfig(**budget), TrainState(HERE, **state)
    assert counts.progress(config) == pytest.approx(expected)


def test_compiling_does_not_move_progress_back() -> None:
    config = TrainConfig(max_minutes=10.0)
    before = TrainState(HERE, seconds=300.0, startup_seconds=60.0)
    after = TrainState(HERE, seconds=360.0, startup_seconds=120.0)
    assert after.progress(config) >= before.progress(config)


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        ({"max_steps": 11, "max_tokens": 1001, "max_minutes": 2.1}, None),
        ({"max_steps": 10}, "max_steps"),
        ({"max_tokens": 1000, "max_steps": 11}, "max_tokens"),
        ({"max_minutes": 1.5, "max_tokens": 5000}, "max_minutes"),
    ],
)
def test_a_spent_budget_is_found(budget: dict[str, Any], spent: str | None) -> None:
    state = TrainState(HERE, step=10, tokens=1000, seconds=120.0, startup_seconds=60.0)
    assert state.find_spent(TrainConfig(**budget)) == spent


def test_the_state_goes_round_through_json() -> None:
    state = TrainState(HERE, 3, 400, 1.25, 0.5, 2)
    assert TrainState.from_json(json.loads(json.dumps(state.to_json()))) == state


@pytest.mark.parametrize("change", [{"position": 3}, {"stpe": 1}])
def test_a_state_that_cannot_be_is_an_error(change: dict[str, Any]) -> None:
    values = {**TrainState(DataPosition(8)).to_json(), **change}
    with pytest.raises(CheckpointError, match="counts cannot be read"):
        TrainState.from_json(values)


def test_counts_that_an_older_checkpoint_lacks_are_zero() -> None:
    values = TrainState(DataPosition(8, 2, 5), step=3).to_json()
    del values["skipped_steps"]
    assert TrainState.from_json(values) == TrainState(DataPosition(8, 2, 5), step=3)
