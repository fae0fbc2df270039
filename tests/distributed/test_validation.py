"""The validation that users have, with its samples, where weights are spread over ranks."""

from pathlib import Path

import numpy as np
import pytest

from maskwright.distributed.world import ALONE, World
from maskwright.logs import Record
from maskwright.pretraining.build import build_trainer
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.run_directory import load_run_config
from tests.distributed.work import train_prepared
from tests.distributed.worlds import run_world
from tests.workplace import data_of

FSDP = {"parallel": "fsdp", "max_steps": "4", "num_validations": "2"}


def find_inputs(workplace: Path) -> tuple[Path, Path]:
    return workplace / "runs" / "small", data_of(workplace)


@pytest.mark.parametrize("average", [{}, {"ema_decay": "0.9"}])
def test_what_is_saved_after_a_validation_is_not_rounded(
    workplace: Path, tmp_path: Path, average: dict[str, str]
) -> None:
    """FSDP2 keeps what a forward pass put together, in bf16, until somebody lets go of it."""
    train = {**FSDP, "precision": "bf16", **average}
    first, _ = run_world(2, train_prepared, *find_inputs(workplace), tmp_path, train, False)
    assert (first.stopped, first.step, first.validations) == (False, 4, 2)
    assert first.dtypes == {"F32"}
    assert first.weights is not None
    low_bits = np.uint32(0xFFFF)
    for name, weights in first.weights.items():
        if "norm" not in name and "bias" not in name:
            assert (weights.view(np.uint32) & low_bits).any(), f"{name} was rounded to bf16"


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_validation_that_one_rank_leaves_is_left_by_all(
    workplace: Path, tmp_path: Path, parallel: str
) -> None:
    train = {**FSDP, "parallel": parallel}
    runs = run_world(2, train_prepared, *find_inputs(workplace), tmp_path, train, True)
    assert [(run.stopped, run.step, run.validations) for run in runs] == [(True, 2, 0)] * 2


def score_suites(world: World, run: Path, data: Path, folder: Path, parallel: str) -> Record:
    """The scores of suites at the last validation of a short run."""
    train = {**FSDP, "parallel": parallel, "num_validations": "1", "precision": "fp32"}
    config = load_run_config(run, {"train": train, "evaluate": {"suites": ["fill", "pll"]}})
    trainer, _ = build_trainer(config, PreparedData(data, "sizes"), folder, world)
    trainer.fit()
    assert trainer.last_scores is not None
    return {name: value for name, value in trainer.last_scores.items() if "/" in name}


def test_suites_have_the_same_scores_on_all_ranks(workplace: Path, tmp_path: Path) -> None:
    inputs = (*find_inputs(workplace), tmp_path)
    expected = score_suites(ALONE, *inputs[:2], tmp_path / "alone", "ddp")
    assert expected["fill/loss"] > 0
    one, two = run_world(2, score_suites, *inputs, "fsdp")
    assert one == two == pytest.approx(expected, rel=1e-3)
