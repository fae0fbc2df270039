"""An objective is one file and one line of registration: this one copies its input."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import maskwright
from maskwright.data.batch import Batch
from maskwright.logs import read_metrics
from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_flops_per_token, count_parameters
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.config import OBJECTIVES, Registered
from maskwright.objectives.objective import (
    HeldOut,
    Loss,
    Objective,
    Term,
    TermSums,
    TrainedModel,
)
from maskwright.objectives.scores import ScoreLine
from tests.workplace import data_of


def count_tokens(batch: Batch) -> int:
    return batch.num_tokens


def read_all(model: MaskedLanguageModel, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of all tokens but padding, and the tokens."""
    positions = (batch.input_ids != model.config.pad_token_id).nonzero().flatten()
    return model(batch.input_ids, batch.context, positions), batch.input_ids[positions]


class CopyLoss(Loss):
    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        self.model = model
        self.terms = {"copy": Term(1.0, "copy_loss", "copy_accuracy", count_tokens)}

    def forward(self, batch: Batch) -> dict[str, TermSums]:
        logits, tokens = read_all(self.model, batch)
        loss = F.cross_entropy(logits.float(), tokens, reduction="sum")
        return {"copy": TermSums(loss, (logits.argmax(-1) == tokens).sum())}


class CopyTokens(Objective[MaskedLanguageModel]):
    scores = (ScoreLine("copy_accuracy", "tokens copied", headline="copy accuracy"),)
    counts = (("num_copied", "tokens to copy"),)
    notes = "{num_copied:,} tokens were to be copied."

    def build_network(self, architecture: EncoderConfig) -> MaskedLanguageModel:
        return MaskedLanguageModel(architecture)

    def build_loss(self, network: MaskedLanguageModel) -> Loss:
        return CopyLoss(network)

    def masked_lm(self, network: MaskedLanguageModel) -> MaskedLanguageModel:
        return network

    def check_held_out(self, held_out: HeldOut) -> None:
        assert all(any(batches) for batches in held_out.read_sources().values())

    @torch.no_grad()
    def validate(self, network: MaskedLanguageModel, held_out: HeldOut) -> dict[str, float]:
        num_right = num_copied = 0
        for batches in held_out.read_sources().values():
            for batch in batches:
                logits, tokens = read_all(network, batch.to(held_out.device))
                num_right += int((logits.argmax(-1) == tokens).sum())
                num_copied += len(tokens)
        return {"copy_accuracy": num_right / num_copied, "num_copied": num_copied}

    def count_flops_per_token(
        self, architecture: EncoderConfig, segment_length: int, masked_share: float
    ) -> float:
        return count_flops_per_token(architecture, segment_length, 1.0)

    def describe_parameters(self, architecture: EncoderConfig) -> str:
        return f"copier {count_parameters(architecture).total:,}"

    def list_models(self, network: MaskedLanguageModel) -> list[TrainedModel]:
        return [TrainedModel("The copier", "A model that copies", network)]


SECTIONS: dict[str, Any] = {
    "objective": {"name": "copy"},
    "data": {"max_seq_length": 32},
    "model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    "train": {
        "max_steps": 2,
        "batch_tokens": 512,
        "log_every_steps": 1,
        "num_validations": 1,
        "valid_tokens": 512,
        "final_valid_tokens": 512,
        "report": False,
    },
}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "copy", Registered(f"{__name__}:CopyTokens"))


@pytest.mark.usefixtures("registered")
def test_a_run_trains_validates_and_describes_a_new_objective(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, run = data_of(workplace), tmp_path / "run"
    folder = maskwright.pretrain(text, recipe="tiny", out=run, **SECTIONS)
    *_, train, valid = read_metrics(run / "metrics.jsonl")
    assert train["split"] == "train"
    assert train["copy_loss"] > 0
    assert valid["split"] == "valid"
    assert 0 <= valid["copy_accuracy"] <= 1
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.partition("\n\n# ")[2].startswith("run\n\nA model that copies trained from scratch")
    assert f"| tokens copied | {valid['copy_accuracy']:.4f} |" in card
    assert f"{valid['num_copied']:,} tokens were to be copied." in card
    assert "accuracy on [MASK]" not in card
    printed = capsys.readouterr().out
    assert f"{valid['num_copied']:,} tokens to copy" in printed
    assert f"tokens copied  {valid['copy_accuracy']:.3f}" in printed
    maskwright.watch(run, once=True)
    assert f"copy accuracy {valid['copy_accuracy']:.3f}" in capsys.readouterr().out
    maskwright.load_model(folder)


@pytest.mark.usefixtures("registered")
def test_a_dry_run_knows_a_new_objective(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = data_of(workplace)
    maskwright.pretrain(text, recipe="tiny", out=tmp_path / "run", dry_run=True, **SECTIONS)
    assert "parameters: copier " in capsys.readouterr().out
