"""What was given is not changed, and the origin of each value is known."""

from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.errors import ConfigError
from maskwright.runs.config import resolve
from maskwright.runs.settled import Settled


def test_change_refuses_what_was_given_and_records_the_rest() -> None:
    settled = Settled.read("auto", None, {"optim": {"learning_rate": 0.024}})
    assert settled.list_origins()["flag"] == ["optim.learning_rate"]
    wide = resolve("wide")
    changed = settled.change(replace(settled.config, masking=wide.masking), "budget")
    assert changed.list_origins()["budget"] == ["masking.rate", "masking.final_rate"]
    with pytest.raises(ConfigError) as caught:
        settled.change(replace(settled.config, optim=wide.optim), "budget")
    assert caught.value.field == "optim.learning_rate"


def test_list_origins_names_the_layer_that_a_value_is_from(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("recipe: tiny\ntrain: {max_steps: 5, grad_clip: 1.0}\nseed: 0\n", "utf-8")
    settled = Settled.read(
        None, path, {"train": {"grad_clip": 1.0, "batch_tokens_schedule": "0:64"}}
    )
    origins = settled.list_origins()
    assert origins["file"] == ["seed", "train.max_steps"]
    assert origins["flag"] == ["train.batch_tokens_schedule", "train.grad_clip"]
    assert "optim.learning_rate" in origins["recipe"]
    # A budget and a schedule put those of the recipe out of force.
    assert not {"train.max_minutes", "train.batch_tokens"} & {*origins["recipe"]}
    assert Settled(resolve("tiny")).list_origins() == {}
