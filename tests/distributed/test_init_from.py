"""Ranks that begin with a model that exists begin with the same one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maskwright.pretraining.init_from import adopt_model
from maskwright.runs.config import resolve
from maskwright.runs.find_data import prepare_for
from tests.distributed.work import continue_pretraining
from tests.distributed.worlds import alone, run_world
from tests.hub_folders import write_twin
from tests.workplace import write_corpus


def test_two_ranks_give_the_losses_of_one(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "animals.txt", 60)
    given = {
        "init_from": str(write_twin(tmp_path / "twin", "modernbert")),
        "tokenizer": {"extend_vocab": 8},
        "corpus": {"valid_fraction": 0.2, "deduplicate": False},
        "data": {"max_seq_length": 32},
        "train": {
            "max_steps": 6, "batch_tokens": 256, "compile": "off", "log_every_steps": 1,
            "precision": "fp32", "num_validations": 1, "final_valid_tokens": 512, "device": "cpu",
        },
    }  # fmt: skip
    config = adopt_model(replace(resolve(None, None, given), text=(str(text),)), given)
    folder = prepare_for(config, tmp_path / "data", lambda line: None)
    beginning, losses = alone(continue_pretraining, config, folder)
    assert len(losses) == 6
    for outcome in run_world(2, continue_pretraining, config, folder):
        assert outcome[0] == pytest.approx(beginning, abs=1e-5)
        assert np.allclose(outcome[1], losses, rtol=0, atol=1e-5)
