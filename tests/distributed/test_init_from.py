"""Ranks that begin with a model that exists, or learn from one, do so alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.pretraining.find_data import find_or_prepare
from maskwright.pretraining.request import read_facts
from maskwright.pretraining.settle import settle
from maskwright.runs.settled import Settled
from tests.distributed.work import continue_pretraining, learn_from_teacher
from tests.distributed.worlds import alone, run_world
from tests.hub_folders import write_twin
from tests.workplace import write_corpus

SECTIONS: dict[str, dict[str, Any]] = {
    "corpus": {"valid_fraction": 0.2, "deduplicate": False},
    "data": {"max_seq_length": 32},
    "train": {
        "max_steps": 6, "batch_tokens": 256, "compile": "off", "log_every_steps": 1,
        "precision": "fp32", "num_validations": 1, "final_valid_tokens": 512, "device": "cpu",
    },
}  # fmt: skip


def test_two_ranks_give_the_losses_of_one(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "animals.txt", 60)
    twin = str(write_twin(tmp_path / "twin", "modernbert"))
    given = {"init_from": twin, "tokenizer": {"extend_vocab": 8}, **SECTIONS}
    asked = Settled.read(None, None, {**given, "text": [str(text)]})
    config = settle(asked, read_facts(asked.config)).config
    [folder] = find_or_prepare(config, tmp_path / "data", lambda line: None).values()
    beginning, losses = alone(continue_pretraining, config, folder)
    assert len(losses) == 6
    for outcome in run_world(2, continue_pretraining, config, folder):
        assert outcome[0] == pytest.approx(beginning, abs=1e-5)
        assert np.allclose(outcome[1], losses, rtol=0, atol=1e-5)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_learn_from_a_teacher_as_one_does(parallel: str, tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "animals.txt", 60)
    given = {
        **SECTIONS,
        "teacher": str(write_twin(tmp_path / "twin", "modernbert")),
        "train": {**SECTIONS["train"], "parallel": parallel},
    }
    asked = Settled.read(None, None, {**given, "text": [str(text)]})
    config = settle(asked, read_facts(asked.config)).config
    [folder] = find_or_prepare(config, tmp_path / "data", lambda line: None).values()
    expected = alone(learn_from_teacher, config, folder)
    assert len(expected) == 6
    for outcome in run_world(2, learn_from_teacher, config, folder):
        assert np.allclose(outcome, expected, rtol=1e-4, atol=1e-4)
