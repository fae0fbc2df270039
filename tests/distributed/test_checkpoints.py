"""Checkpoints and model folders of a model that is spread over ranks."""

import re
from pathlib import Path

import pytest

from maskwright.errors import CheckpointError
from maskwright.train.checkpoint import list_checkpoints, open_checkpoint, verify_checkpoint
from tests.distributed.work import count_gathered, train
from tests.distributed.worlds import run_world
from tests.models import small_model

SPREAD = {"train": {"parallel": "fsdp", "keep_checkpoints": 9}}


def test_every_rank_writes_a_file_of_its_own_and_nothing_is_pickled(tmp_path: Path) -> None:
    run_world(3, train, SPREAD, tmp_path)
    (path,) = list_checkpoints(tmp_path)
    verify_checkpoint(path)
    names = sorted(file.name for file in path.iterdir())
    assert names[0] == "manifest.json"
    assert [name for name in names if not name.endswith(".json")] == [
        f"shard-{rank:05d}-model-00001-of-00001.safetensors" for rank in (1, 2, 3)
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_checkpoint_without_the_parts_of_a_rank_is_not_opened(tmp_path: Path) -> None:
    """Not even if its hashes are right: what is missing would stay as it was before."""
    run_world(2, train, SPREAD, tmp_path)
    (path,) = list_checkpoints(tmp_path)
    assert open_checkpoint(path).shapes
    next(path.glob("shard-00001-*")).unlink()
    with pytest.raises(CheckpointError, match=re.compile(r"has \d+ of its \d+ numbers")):
        open_checkpoint(path)


def test_a_model_is_put_together_once_and_one_parameter_at_a_time() -> None:
    total = sum(parameter.numel() for parameter in small_model().parameters())
    for own, gathered, at_once in run_world(4, count_gathered):
        assert own < 0.4 * total  # about a quarter, and the padding of what does not divide
        assert gathered == total
        assert at_once < 0.2 * total
