"""Folders of every family with one thing wrong: an error that names the tensor, never a guess."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from maskwright.errors import ModelFolderError
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model.presets import PRESETS
from maskwright.model_folder.families import FAMILIES
from maskwright.model_folder.folder import open_encoder, save_model
from maskwright.model_folder.weights import read_model
from tests.model.helpers import tiny_model
from tests.model_folder.helpers import tiny_tokenizer

Tensors = dict[str, Tensor]
# Their names for the decoder's weight and bias, and for the same where the decoder is tied.
DECODER = {
    "bert": ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    "modernbert": ("decoder.weight", "model.embeddings.tok_embeddings.weight"),
    "eurobert": ("lm_head.weight", "model.embed_tokens.weight"),
    "roberta": ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
    "distilbert": ("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),
    "megatron-bert": ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    "roberta-prelayernorm": (
        "lm_head.decoder.weight", "roberta_prelayernorm.embeddings.word_embeddings.weight"
    ),
    "esm": ("lm_head.decoder.weight", "esm.embeddings.word_embeddings.weight"),
    "jina_embeddings_v3": ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
    "nomic_bert": (
        "cls.predictions.decoder.weight", "nomic_bert.embeddings.word_embeddings.weight"
    ),
    "gte": ("lm_head.decoder.weight", "gte.embeddings.word_embeddings.weight"),
    "ultrabert": ("head.decoder.weight", "model.embed_tokens.weight"),
    "electra": ("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),
    "neobert": ("decoder.weight", "model.encoder.weight"),
    "deberta-v2": ("cls.predictions.decoder.weight", "deberta.embeddings.word_embeddings.weight"),
}  # fmt: skip
TIED = [preset for preset in PRESETS if "tie_word_embeddings" not in FAMILIES[preset].fixed]
TWO_BIASES = [preset for preset in PRESETS if FAMILIES[preset].tied_bias]
UNLEARNED = ("inv_freq", "contact_head")


class Folder:
    """A good folder, and copies of it that are not."""

    def __init__(self, path: Path, preset: str, tied: bool) -> None:
        self.model = tiny_model(preset=preset, num_hidden_layers=1, tie_word_embeddings=tied)
        save_model(path / "good", self.model, tiny_tokenizer(path / "tokenizer"))
        self.path = path / "copy"
        shutil.copytree(path / "good", self.path)
        self.tensors: Tensors = load_file(path / "good" / "model.safetensors")

    @property
    def learned(self) -> list[str]:
        tied = self.model.config.tie_word_embeddings
        unlearned = (*UNLEARNED, *["lm_head.decoder.bias"] * tied)  # which repeats lm_head.bias
        return [name for name in self.tensors if not any(word in name for word in unlearned)]

    def without(self, *names: str) -> Tensors:
        return {name: tensor for name, tensor in self.tensors.items() if name not in names}

    def load(self, tensors: Tensors) -> MaskedLanguageModel:
        save_file(tensors, self.path / "model.safetensors")
        raw = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        family = FAMILIES[raw["model_type"]]
        config = family.read_config(raw)
        return read_model(self.path, lambda: MaskedLanguageModel(config), family)

    def error(self, tensors: Tensors) -> str:
        with pytest.raises(ModelFolderError) as caught:
            self.load(tensors)
        assert str(caught.value).isprintable()
        return str(caught.value).removeprefix(f"{self.path}: ")

    def is_intact(self, tensors: Tensors) -> bool:
        state = self.load(tensors).state_dict()
        return all(torch.equal(state[name], t) for name, t in self.model.state_dict().items())


@pytest.mark.parametrize("preset", PRESETS)
def test_any_tensor_that_is_missing_is_named(preset: str, tmp_path: Path) -> None:
    tied = Folder(tmp_path, preset, tied=preset in TIED)  # NeoBERT's class cannot
    assert tied.is_intact(tied.tensors)
    repeated = {"lm_head.bias": "lm_head.decoder.bias"}
    for name in tied.learned:
        rest = tied.without(name, repeated.get(name, name))
        assert tied.error(rest) == f"tensor {name} is missing from the weights."
    for name in (*repeated, *repeated.values()):  # either is enough
        if tied.tensors.keys() >= {*repeated, *repeated.values()}:
            assert tied.is_intact(tied.without(name))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_decoder_of_its_own_must_be_there(preset: str, tmp_path: Path) -> None:
    folder, family = Folder(tmp_path, preset, tied=False), FAMILIES[preset]
    assert folder.is_intact(folder.tensors)
    parts = [name for name in folder.tensors if name.startswith(DECODER[preset][0][:-6])]
    assert len(parts) == 1 + folder.model.config.decoder_bias - (preset == "esm")
    for name in parts:
        rest = {other: t for other, t in folder.tensors.items() if other != name}
        assert folder.error(rest) == f"tensor {name} is missing from the weights."
    if family.tied_bias:  # which their class wants to find and does not use
        del folder.tensors[family.tied_bias]
        assert folder.is_intact(folder.tensors)


@pytest.mark.parametrize("preset", ["roberta", "gte"])
def test_any_tensor_of_another_shape_or_with_a_nan_is_named(preset: str, tmp_path: Path) -> None:
    tied = Folder(tmp_path, preset, tied=True)
    for name in tied.learned:
        shape, wrong = tuple(tied.tensors[name].shape), tied.tensors[name][:-1].clone()
        message = tied.error({**tied.tensors, name: wrong})
        assert message == (
            f"tensor {name} has shape {tuple(wrong.shape)}, but config.json implies {shape}."
        )
        broken = tied.tensors[name].clone()
        broken.view(-1)[0] = float("nan")  # in RoBERTa's positions, a row that no token has
        message = tied.error({**tied.tensors, name: broken})
        assert message == f"tensor {name} holds NaN or infinity."
    some = tied.learned[0]
    for name in ("extra", some + "_scale", some.replace("embed", "lora_embed") + ".A", "*.inv"):
        message = tied.error({**tied.tensors, name: torch.zeros(2)})
        assert message.startswith(f"tensor {name} is unknown to model_type ")


@pytest.mark.parametrize("preset", TIED)
def test_a_tied_decoder_must_be_the_embeddings(preset: str, tmp_path: Path) -> None:
    decoder, words = DECODER[preset]
    folder = Folder(tmp_path, preset, tied=True)
    assert decoder not in folder.tensors
    twice = {**folder.tensors, decoder: folder.tensors[words].clone()}
    assert folder.is_intact(twice)
    # transformers, too, takes the one that is there.
    assert folder.is_intact({name: t for name, t in twice.items() if name != words})
    twice[decoder][3, 3] += 1e-3
    assert folder.error(twice) == (
        f"tensor {decoder} differs from {words}, but config.json has "
        "tie_word_embeddings = True; set it to False if both are intended."
    )
    twice[decoder] = torch.zeros(63, 32)
    assert f"tensor {decoder} has shape (63, 32), but" in folder.error(twice)
    del twice[decoder], twice[words]
    assert folder.error(twice) == f"tensor {words} is missing from the weights."


@pytest.mark.parametrize("preset", TWO_BIASES)
def test_a_tied_bias_must_be_one(preset: str, tmp_path: Path) -> None:
    first = FAMILIES[preset].tied_bias
    second = DECODER[preset][0].replace("weight", "bias")
    folder = Folder(tmp_path, preset, tied=True)
    twice = {**folder.tensors, second: folder.tensors[first].clone()}
    assert folder.is_intact(twice)
    assert folder.is_intact({name: t for name, t in twice.items() if name != first})
    twice[second][0] += 1
    assert folder.error(twice).startswith(f"tensor {second} differs from {first}, but")


def test_frequencies_in_a_file_are_left_out(tmp_path: Path) -> None:
    folder, name = Folder(tmp_path, "esm", tied=True), "esm.rotary_embeddings.inv_freq"
    layer = "esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq"
    older: Tensors = {**folder.tensors, layer: folder.tensors[name].clone()}
    del older[name]
    assert folder.is_intact(older)


def respell(tensors: Tensors, old: str, *new: str) -> None:
    """Puts the rows of `new` below each other under an older name, for weights and biases."""
    for kind in ("weight", "bias"):
        if f"{new[0]}.{kind}" in tensors:
            tensors[f"{old}.{kind}"] = torch.cat([tensors.pop(f"{n}.{kind}") for n in new])


FUSED = {
    "jina_embeddings_v3": (
        "roberta.encoder.layers.0.mixer.Wqkv",
        *(f"roberta.layers.0.self_attn.{one}_proj" for one in "qkv"),
    ),
    "nomic_bert": (
        "nomic_bert.encoder.layers.0.attn.Wqkv",
        *(f"nomic_bert.layers.0.self_attn.{one}_proj" for one in "qkv"),
    ),
    "gte": (
        "gte.encoder.layer.0.mlp.up_gate_proj",
        "gte.layers.0.mlp.up_proj",
        "gte.layers.0.mlp.gate_proj",
    ),
}


@pytest.mark.parametrize("preset", FUSED)
def test_older_spellings_are_checked_as_well(preset: str, tmp_path: Path) -> None:
    folder, (old, *new) = Folder(tmp_path, preset, tied=True), FUSED[preset]
    older = dict(folder.tensors)
    respell(older, old, *new)
    assert folder.is_intact(older)
    name = f"{old}.weight"
    assert f"tensor {name} has shape" in folder.error({**older, name: older[name][:-3].clone()})
    broken = {**older, name: older[name].clone()}
    broken[name][-1, -1] = float("inf")
    assert folder.error(broken) == f"tensor {name} holds NaN or infinity."
    both = {**older, f"{new[1]}.weight": folder.tensors[f"{new[1]}.weight"]}
    assert f"tensor {name} is stored twice, also as {new[1]}.weight" in folder.error(both)


@pytest.mark.parametrize("preset", ["jina_embeddings_v3", "nomic_bert"])
def test_older_spellings_are_read_without_a_head(preset: str, tmp_path: Path) -> None:
    """Embedding models are published so: names without the prefix of a class with a head."""
    folder, prefix = Folder(tmp_path, preset, tied=True), FAMILIES[preset].prefix
    older = {
        name.removeprefix(prefix): tensor
        for name, tensor in folder.tensors.items()
        if name.startswith(prefix)
    }
    respell(older, *(name.removeprefix(prefix) for name in FUSED[preset]))
    respell(older, "emb_ln", "embeddings.LayerNorm")
    save_file(older, folder.path / "model.safetensors")
    state = open_encoder(folder.path).model.state_dict()
    expected = folder.model.state_dict()
    assert state.keys() == {name for name in expected if name.startswith("encoder.")}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in state.items())
