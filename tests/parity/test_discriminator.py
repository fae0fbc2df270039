"""Discriminators of replaced tokens: ElectraForPreTraining in both directions."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForPreTraining

from maskwright.errors import ModelFolderError
from maskwright.model.electra import Discriminator
from maskwright.model_folder.folder import open_encoder, open_model, save_model
from tests.model.helpers import tiny_config
from tests.model_folder.helpers import tiny_tokenizer
from tests.twins import PACKED, PADDED, ROW, TOLERANCE, Rows, fill_rows, pack, randomize

VARIANTS: dict[str, dict[str, Any]] = {
    "electra": {"preset": "electra"},
    "narrow embeddings": {"preset": "electra", "embedding_size": 24, "hidden_act": "silu"},
    "bert": {"preset": "bert"},
    "what only a head that guesses words has": {
        "preset": "electra", "tie_word_embeddings": False, "head_act": "relu",
        "decoder_bias": False,
    },
}  # fmt: skip


def tiny_discriminator(**fields: object) -> Discriminator:
    model = Discriminator(tiny_config(**fields))
    randomize(model, seed=0)
    return model.eval()


@torch.no_grad()
def our_scores(ours: Discriminator, rows: Rows) -> Tensor:
    """[tokens] without padding."""
    ids, real = fill_rows(rows, ours.config.pad_token_id)
    tails = [(*row, ROW - sum(row)) if sum(row) < ROW else row for row in rows]
    return ours(ids.flatten(), pack(tails))[real.flatten()]


@torch.no_grad()
def largest_difference(ours: Discriminator, theirs: Any) -> float:
    ids, real = fill_rows(PADDED, theirs.config.pad_token_id)
    expected = theirs.eval()(input_ids=ids, attention_mask=real.long()).logits[real]
    assert expected.std() > 0.1
    return max((our_scores(ours, rows) - expected).abs().max().item() for rows in (PADDED, PACKED))


@pytest.mark.parametrize("name", VARIANTS)
def test_transformers_loads_our_folder_and_we_load_theirs_again(name: str, tmp_path: Path) -> None:
    ours, tokenizer = tiny_discriminator(**VARIANTS[name]), tiny_tokenizer(tmp_path / "tokenizer")
    save_model(tmp_path / "ours", ours, tokenizer)
    theirs, info = AutoModelForPreTraining.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(theirs).__name__ == "ElectraForPreTraining"
    assert largest_difference(ours, theirs) <= TOLERANCE
    theirs.save_pretrained(tmp_path / "theirs")
    tokenizer.save(tmp_path / "theirs", max_length=ROW)
    for folder in ("ours", "theirs"):
        back = open_encoder(tmp_path / folder).model
        assert isinstance(back, Discriminator)
        assert torch.equal(our_scores(back, PACKED), our_scores(ours, PACKED))
    card = (tmp_path / "ours/README.md").read_text(encoding="utf-8")
    assert f"{sum(p.numel() for p in ours.parameters()):,} parameters" in card
    assert AutoModel.from_pretrained(tmp_path / "ours").config.hidden_size == 32


def test_the_encoder_of_a_deberta_is_loaded_by_transformers(tmp_path: Path) -> None:
    ours = tiny_discriminator(preset="deberta-v2", position_buckets=6)
    save_model(tmp_path / "model", ours, tiny_tokenizer(tmp_path / "tokenizer"))
    theirs, info = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert type(theirs).__name__ == "DebertaV2Model"
    assert not info["missing_keys"]
    assert all(name.startswith("mask_predictions.") for name in info["unexpected_keys"])
    ids, real = fill_rows(PADDED, 0)
    with torch.no_grad():
        expected = theirs.eval()(ids, attention_mask=real.long()).last_hidden_state[real]
        tails = [(*row, ROW - sum(row)) if sum(row) < ROW else row for row in PADDED]
        found = ours.encoder(ids.flatten(), pack(tails))[real.flatten()]
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)
    back = open_encoder(tmp_path / "model").model
    assert isinstance(back, Discriminator)
    assert torch.equal(our_scores(back, PACKED), our_scores(ours, PACKED))
    card = (tmp_path / "model/README.md").read_text(encoding="utf-8")
    assert "AutoModel.from_pretrained" in card
    assert "AutoModelForMaskedLM" not in card


def test_one_that_no_class_computes_is_written_in_our_words(tmp_path: Path) -> None:
    ours = tiny_discriminator(preset="modernbert", embedding_size=24, local_attention=6)
    save_model(tmp_path / "model", ours, tiny_tokenizer(tmp_path / "tokenizer"))
    back = open_encoder(tmp_path / "model").model
    assert isinstance(back, Discriminator)
    assert torch.equal(our_scores(back, PACKED), our_scores(ours, PACKED))
    card = (tmp_path / "model/README.md").read_text(encoding="utf-8")
    assert "ElectraForPreTraining, the only one for it, has no " in card


def test_it_is_not_taken_for_a_model_that_guesses_words(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer")
    save_model(tmp_path / "run/model", tiny_discriminator(preset="electra"), tokenizer)
    with pytest.raises(ModelFolderError) as error:
        open_model(tmp_path / "run/model")
    for part in ("is a discriminator (ElectraForPreTraining)", "Use maskwright embed"):
        assert part in str(error.value)
    assert "restore its generator as" in str(error.value)
    (tmp_path / "run/generator").mkdir()
    with pytest.raises(ModelFolderError, match=r"use its generator .*/run/generator\.$"):
        open_model(tmp_path / "run/model")
