"""BertForPreTraining and its kin: both heads, from our names and from theirs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForPreTraining

from maskwright.errors import ModelFolderError
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import load_model, save_model
from maskwright.model_folder.native.bert_like import BERT
from maskwright.model_folder.native.own import OWN
from maskwright.model_folder.weights import holds_pair_head
from tests.model.helpers import random_ids, tiny_model, with_pair_head
from tests.model_folder.helpers import tiny_tokenizer, write_tokenizer
from tests.twins import ROW, TOLERANCE, VOCAB_SIZE, largest_difference, randomize
from tests.twins import pack as pack_rows

CLASSES = {"bert": "BertForPreTraining", "megatron-bert": "MegatronBertForPreTraining"}
LENGTHS = (16, 9, 5)
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": ROW, "vocab_size": VOCAB_SIZE, "pad_token_id": 0,
}  # fmt: skip


def build_theirs(model_type: str) -> Any:
    config = AutoConfig.for_model(model_type, **SIZES)
    model = AutoModelForPreTraining.from_config(config)
    randomize(model, seed=2)
    return model.eval()


@torch.no_grad()
def compare(ours: MaskedLanguageModel, theirs: Any) -> float:
    """The largest difference of any logit: ours from a packed batch, theirs from a padded one."""
    ids = [random_ids(length, seed=length) for length in LENGTHS]
    types = [(torch.arange(length) > length // 2).long() for length in LENGTHS]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    real = torch.nn.utils.rnn.pad_sequence([torch.ones_like(i) for i in ids], batch_first=True)
    padded_types = torch.nn.utils.rnn.pad_sequence(types, batch_first=True)
    expected = theirs(input_ids=padded, attention_mask=real, token_type_ids=padded_types)
    context = pack_rows([[16], [9, 5, 2]])
    last = torch.zeros(2, dtype=torch.long)  # the rest of the row
    firsts = torch.tensor([0, 16, 25])
    found = ours(
        torch.cat([*ids, last]), context, torch.arange(30), torch.cat([*types, last]), firsts
    )
    assert expected.seq_relationship_logits.std() > 0.05
    return max(
        largest(found.masked, expected.prediction_logits[real.bool()]),
        largest(found.pairs, expected.seq_relationship_logits),
    )


def largest(ours: Tensor, theirs: Tensor) -> float:
    return (ours - theirs).abs().max().item()


@pytest.mark.parametrize("preset", CLASSES)
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_both_heads(preset: str, tied: bool, tmp_path: Path) -> None:
    ours = with_pair_head(preset=preset, tie_word_embeddings=tied)
    save_model(tmp_path / "ours", ours, tiny_tokenizer(tmp_path / "tokenizer"))
    theirs, info = AutoModelForPreTraining.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert type(theirs).__name__ == CLASSES[preset]
    assert not any(info.values())
    assert compare(ours, theirs) <= TOLERANCE
    card = (tmp_path / "ours" / "README.md").read_text(encoding="utf-8")
    assert f"the tensor names of `{CLASSES[preset]}`" in card
    back, _ = load_model(tmp_path / "ours")
    assert compare(back, theirs) <= TOLERANCE


@pytest.mark.parametrize("preset", CLASSES)
def test_the_class_without_that_head_says_what_it_leaves(preset: str, tmp_path: Path) -> None:
    ours = with_pair_head(preset=preset)
    save_model(tmp_path / "ours", ours, tiny_tokenizer(tmp_path / "tokenizer"))
    theirs, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    names = (f"{name}.{kind}" for name in ("bert.pooler.dense", "cls.seq_relationship")
             for kind in ("weight", "bias"))  # fmt: skip
    assert set(info["unexpected_keys"]) == set(names)
    assert not info["missing_keys"]
    assert largest_difference(ours, theirs) <= TOLERANCE


@pytest.mark.parametrize("model_type", CLASSES)
def test_we_load_both_heads(model_type: str, tmp_path: Path) -> None:
    theirs = build_theirs(model_type)
    theirs.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    ours, tokenizer = load_model(tmp_path)
    assert ours.config.sentence_pair_head
    assert compare(ours, theirs) <= TOLERANCE
    save_model(tmp_path / "again", ours, tokenizer)
    again = AutoModelForPreTraining.from_pretrained(tmp_path / "again")
    assert compare(ours, again) <= TOLERANCE
    assert largest(again.bert.pooler.dense.weight, theirs.bert.pooler.dense.weight) == 0


def change_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**raw, **fields}), encoding="utf-8")


def test_a_class_without_that_head_may_hold_it(tmp_path: Path) -> None:
    """As the folders of google-bert do; then it is there for who asks for it."""
    theirs = build_theirs("bert")
    theirs.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    change_config(tmp_path, architectures=["BertForMaskedLM"])
    ours, _ = load_model(tmp_path)
    assert not ours.config.sentence_pair_head
    assert ours.pair_head is None
    assert holds_pair_head(tmp_path, ours.config, BERT)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["cls.seq_relationship.bias"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert not holds_pair_head(tmp_path, ours.config, BERT)
    change_config(tmp_path, architectures=["BertForPreTraining"])
    with pytest.raises(ModelFolderError, match=r"cls\.seq_relationship\.bias is missing"):
        load_model(tmp_path)


@pytest.mark.parametrize("preset", ["modernbert", "roberta", "nomic_bert"])
def test_other_classes_have_no_such_head(preset: str, tmp_path: Path) -> None:
    ours = with_pair_head(preset=preset, type_vocab_size=2)
    save_model(tmp_path / "ours", ours, tiny_tokenizer(tmp_path / "tokenizer"))
    raw = json.loads((tmp_path / "ours" / "config.json").read_text(encoding="utf-8"))
    back, _ = load_model(tmp_path / "ours")
    if preset == "roberta":  # whose computation is BERT's
        assert raw["architectures"] == ["BertForPreTraining"]
    else:
        assert raw["model_type"] == OWN.model_type
        card = (tmp_path / "ours" / "README.md").read_text(encoding="utf-8")
        assert "no sentence_pair_head = True" in card
        assert holds_pair_head(tmp_path / "ours", back.config, OWN)
    assert torch.equal(own_pairs(back), own_pairs(ours))


@torch.no_grad()
def own_pairs(model: MaskedLanguageModel) -> Tensor:
    types, firsts = (torch.arange(ROW) > 4).long(), torch.zeros(1, dtype=torch.long)
    return model(random_ids(ROW), pack_rows([[ROW]]), firsts, types, firsts).pairs


def test_older_files_of_ours_have_no_such_head() -> None:
    raw = OWN.write_config(tiny_model(qk_norm=True).config)
    del raw["sentence_pair_head"]
    assert not OWN.read_config(raw).sentence_pair_head
