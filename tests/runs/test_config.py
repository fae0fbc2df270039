"""What a value on a higher layer puts out of force below it."""

from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.config import write_yaml
from maskwright.errors import ConfigError
from maskwright.model.config import SIZE_FIELDS
from maskwright.runs.config import list_ignored, resolve


def write(folder: Path, text: str) -> Path:
    path = folder / "my.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_budget_in_a_file_replaces_the_budget_of_its_recipe(tmp_path: Path):
    train = resolve(None, write(tmp_path, "recipe: tiny\ntrain:\n  max_steps: 100\n")).train
    assert (train.max_steps, train.max_minutes) == (100, None)


def test_two_budgets_in_one_layer_hold_both():
    train = resolve("tiny", None, {"train": {"max_steps": 100, "max_minutes": 1}}).train
    assert (train.max_steps, train.max_minutes) == (100, 1)


def test_batch_tokens_replace_the_schedule_of_the_recipe():
    train = resolve("small", None, {"train": {"batch_tokens": "8192"}}).train
    assert {train.batch_tokens_at(progress) for progress in (0, 0.3, 1)} == {8192}


def test_a_schedule_replaces_the_batch_tokens_of_a_file(tmp_path: Path):
    file = write(tmp_path, "recipe: tiny\ntrain:\n  batch_tokens: 4096\n")
    train = resolve(None, file, {"train": {"batch_tokens_schedule": "0:512,0.5:1024"}}).train
    assert [train.batch_tokens_at(progress) for progress in (0, 1)] == [512, 1024]


def test_batch_tokens_and_their_schedule_in_one_layer_are_an_error(tmp_path: Path):
    file = write(tmp_path, "train:\n  batch_tokens: 4096\n  batch_tokens_schedule: ['0:512']\n")
    with pytest.raises(ConfigError, match=r"train\.batch_tokens = 4096 cannot be combined with"):
        resolve(None, file)


def test_a_row_length_replaces_a_schedule_of_lengths():
    config = resolve("small", None, {"data": {"max_seq_length": 1024}})
    assert config.train.seq_lengths(config.data.max_seq_length) == [1024]
    same = {"data": {"max_seq_length": resolve("small").data.max_seq_length}}
    assert resolve("small", None, same) == resolve("small")
    both = {"data": {"max_seq_length": 64}, "train": {"seq_length_schedule": "0:32,0.5:64"}}
    assert resolve("small", None, both).train.seq_lengths(64) == [32, 64]


@pytest.mark.parametrize("recipe", ["tiny", "auto", "base"])
def test_a_configuration_that_was_written_reads_the_same(tmp_path: Path, recipe: str):
    written = resolve(recipe)
    config = replace(written, model=replace(written.model, sizes=()))  # it has its size
    assert resolve(None, write(tmp_path, write_yaml(written))) == config
    assert resolve("small", tmp_path / "my.yaml") == config


def test_values_that_the_method_does_not_use_are_told() -> None:
    given = {"optim": {"name": "adamw", "momentum": 0.9}, "train": {"candidate_share": 0.5}}
    assert list_ignored(resolve("tiny", None, given), given) == [
        "optim.momentum has no effect: optim.name is adamw",
        "train.candidate_share has no effect: train.num_candidates is 0",
    ]
    used = {"optim": {"momentum": 0.9}, "masking": {"strategy": "spans", "max_span_length": 3}}
    assert list_ignored(resolve("auto", None, used), used) == []


def test_a_section_that_is_none_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="train = 5 must be a section"):
        resolve("tiny", write(tmp_path, "train: 5\n"))


@pytest.mark.parametrize("name", SIZE_FIELDS)
def test_put_over_refuses_a_size_beside_its_choice(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("auto", None, {"model": {"sizes": ["0:384x1"], name: 384}})
    assert caught.value.field == f"model.{name}"
    assert "model.sizes" in str(caught.value)
