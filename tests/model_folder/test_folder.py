import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForMaskedLM, AutoTokenizer

from maskwright.attention_context import context_from_lengths
from maskwright.errors import ModelFolderError
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import (
    DIMENSIONS,
    EXTRA_KEY,
    load_model,
    open_model,
    read_dimensions,
    save_model,
)
from maskwright.model_folder.weights import WeightReader
from tests.model.helpers import random_ids, tiny_model
from tests.model_folder.helpers import tiny_tokenizer, write_tokenizer

WRITTEN = [
    "README.md",
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
]
QKV = "model.layers.1.attn.Wqkv.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved model of the preset modernbert."""
    save_model(tmp_path / "model", tiny_model(), tiny_tokenizer(tmp_path / "tokenizer"))
    return tmp_path / "model"


@torch.no_grad()
def logits(model: MaskedLanguageModel) -> Tensor:
    return model(random_ids(9), context_from_lengths([9]), torch.arange(9))


@pytest.mark.parametrize("folder", [".", "/"])
def test_a_model_does_not_replace_a_folder_without_a_name(tmp_path: Path, folder: str) -> None:
    with pytest.raises(ModelFolderError, match="cannot replace the folder"):
        save_model(folder, tiny_model(), tiny_tokenizer(tmp_path / "tokenizer"))


def edit_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def edit_config(folder: Path, **fields: object) -> None:
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**raw, **fields}), encoding="utf-8")


def error_of(folder: Path) -> str:
    with pytest.raises(ModelFolderError) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"preset": "modernbert"},
        {"preset": "bert", "tie_word_embeddings": False},
        {"preset": "eurobert", "tie_word_embeddings": True},
        {"qk_norm": True, "first_attention_norm": True, "hidden_dropout": 0.1},
        {"positions": "sinusoidal", "tie_word_embeddings": False},
        {"preset": "eurobert", "positions": "learned", "global_attn_every_n_layers": 2},
    ],
)
def test_what_is_saved_is_what_is_loaded(tmp_path: Path, fields: dict[str, object]) -> None:
    model = tiny_model(**fields)
    save_model(tmp_path / "model", model, tiny_tokenizer(tmp_path / "tokenizer"))
    loaded, tokenizer = load_model(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == WRITTEN
    assert torch.equal(logits(loaded), logits(model))
    for name in ("hidden_dropout", "attention_dropout", "init_output", "initializer_range"):
        assert getattr(loaded.config, name) == getattr(model.config, name)
    assert loaded.config.mask_token_id in (tokenizer.mask_id, None)
    same = loaded.head.decoder.weight is loaded.encoder.embeddings.word.weight
    assert same == model.config.tie_word_embeddings
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_the_card_of_a_native_folder_says_how_to_load_it(folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "AutoModelForMaskedLM.from_pretrained" in card
    parameters = sum(p.numel() for p in load_model(folder)[0].parameters())
    assert f"{parameters:,} parameters" in card


def test_a_tokenizer_that_wraps_in_its_own_way_is_refused(folder: Path) -> None:
    path = folder / "tokenizer.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    description["post_processor"]["single"].pop()
    path.write_text(json.dumps(description), encoding="utf-8")
    edit_config(folder, maskwright={})  # which would say that the tokenizer is another one
    assert "tokenizer adds [CLS] to a text, but only [CLS] and [SEP] around it" in error_of(folder)


def test_special_tokens_are_remembered(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer")
    for choice in (True, False):
        save_model(tmp_path / "m", tiny_model(), tokenizer, add_special_tokens=choice)
        assert open_model(tmp_path / "m").add_special_tokens is choice


def test_an_older_model_is_replaced_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer")
    other = tiny_model(preset="bert")
    save_model(folder, other, tokenizer)
    assert torch.equal(logits(load_model(folder)[0]), logits(other))
    (folder / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(
        ModelFolderError, match=r"holds thesis\.tex, which is not a file of a model"
    ):
        save_model(folder, other, tokenizer)
    assert (folder / "thesis.tex").exists()
    with pytest.raises(ModelFolderError, match="is a file"):
        save_model(folder / "thesis.tex", other, tokenizer)


def test_a_failing_save_leaves_the_older_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("maskwright.model_folder.folder.write_weights", fail)
    with pytest.raises(OSError, match="disk full"):
        save_model(folder, tiny_model(preset="bert"), tiny_tokenizer(tmp_path / "tokenizer"))
    assert torch.equal(logits(load_model(folder)[0]), logits(tiny_model()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "tokenizer"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({QKV: t[QKV].int()}), f"{QKV} holds I32, not one of F64"),
        (lambda t: t.update(extra=torch.zeros(1), zest=torch.ones(1)),
         "extra (and 1 more) is unknown"),
    ],
)  # fmt: skip
def test_wrong_tensors_are_named(
    folder: Path, change: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    edit_weights(folder, change)
    assert message in error_of(folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "llama"}, "model_type = llama is not supported. Supported are bert, "),
        ({"num_attention_heads": 5}, "num_attention_heads = 5 does not divide hidden_size = 32. "),
        ({"hidden_size": 64}, "tensor model.embeddings.tok_embeddings.weight has shape (64, 32)"),
        (
            {"num_hidden_layers": 2, "layer_types": None},
            "model.layers.2.attn.Wo.weight (and 5 more)",
        ),
        ({"hidden_size": 10**30}, "must be at most 131072"),
        ({"vocab_size": 60}, "the tokenizer has 64 tokens, but the model has only vocab_size = 60"),
        ({"maskwright": "no"}, "does not hold a model's configuration."),
        ({"maskwright": {"training": [1]}}, "maskwright.training = [1] must hold fields"),
        ({"maskwright": {"training": {"mlp_dropout": "x"}}}, "mlp_dropout = x must be float"),
    ],
)
def test_wrong_configurations_are_named(
    folder: Path, fields: dict[str, object], message: str
) -> None:
    edit_config(folder, **fields)
    assert message in error_of(folder)


def test_what_is_no_model_folder_says_so(folder: Path, tmp_path: Path) -> None:
    assert error_of(tmp_path / "nowhere") == f"{tmp_path / 'nowhere'} is not a folder."
    empty = tmp_path / "empty"
    empty.mkdir()
    assert error_of(empty) == f"{empty} is not a model folder: it holds no config.json."
    (folder / "config.json").write_text("{", encoding="utf-8")
    assert f"{folder / 'config.json'} cannot be read: Expecting" in error_of(folder)
    (folder / "config.json").write_text("[]", encoding="utf-8")
    assert "does not hold a model's configuration" in error_of(folder)


def test_weights_that_cannot_be_read(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x80\x04 not tensors")
    assert "cannot be read as safetensors" in error_of(folder)
    (folder / "model.safetensors").unlink()
    assert error_of(folder) == f"{folder} is not a model folder: it holds no model.safetensors."
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    message = error_of(folder)
    assert "is a pickle" in message
    assert "save_pretrained" in message


def test_another_tokenizer_is_noticed(folder: Path) -> None:
    before = load_model(folder)[1].fingerprint
    write_tokenizer(folder, num_words=50)
    message = error_of(folder)
    assert "is not the one this model was trained with" in message
    assert f"({before[:4]}…)" in message


def test_an_adapter_is_merged_first(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelFolderError, match="Merge it first"):
        open_model(tmp_path)


def test_a_vocabulary_that_grew_in_transformers_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, grown = tmp_path / "ours", tmp_path / "grown"
    save_model(ours, tiny_model(), tiny_tokenizer(tmp_path / "tokenizer"))
    theirs = AutoTokenizer.from_pretrained(str(ours))
    model = AutoModelForMaskedLM.from_pretrained(str(ours))
    theirs.add_tokens(["snailish"])
    model.resize_token_embeddings(len(theirs))
    theirs.save_pretrained(grown)
    model.save_pretrained(grown)
    loaded, tokenizer = load_model(grown)
    assert loaded.config.vocab_size == tokenizer.vocab_size == len(theirs)
    assert tokenizer.encode("snailish").ids.tolist() == [len(theirs) - 1]
    assert "added to its vocabulary" in caplog.text


def test_names_of_the_first_bert_are_understood(tmp_path: Path) -> None:
    model = tiny_model(preset="bert")
    save_model(tmp_path / "model", model, tiny_tokenizer(tmp_path / "tokenizer"))

    def age(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            old = name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
            tensors[old] = tensors.pop(name)
        tensors["bert.pooler.dense.weight"] = torch.zeros(32, 32)
        tensors["cls.seq_relationship.bias"] = torch.zeros(2)
        tensors["cls.predictions.decoder.weight"] = model.head.decoder.weight.clone()

    edit_weights(tmp_path / "model", age)
    assert torch.equal(logits(load_model(tmp_path / "model")[0]), logits(model))


def test_weights_are_looked_at_before_they_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: WeightReader, ours: str) -> Tensor:
        raise AssertionError(f"{ours} was read")

    monkeypatch.setattr(WeightReader, "read", fail)
    edit_weights(folder, lambda t: t.update(extra=torch.zeros(1)))
    assert "tensor extra is unknown" in error_of(folder)


@pytest.mark.parametrize("value", [0, "", [], False])
@pytest.mark.parametrize("field", [EXTRA_KEY, f"{EXTRA_KEY}.training", DIMENSIONS])
def test_what_is_stated_empty_is_refused_or_empty(folder: Path, field: str, value: object) -> None:
    """A section with another value than fields by name is not taken for one that is missing."""
    outer, _, inner = field.partition(".")
    extra = json.loads((folder / "config.json").read_text())[outer] if inner else {}
    edit_config(folder, **{outer: {**extra, inner: value} if inner else value})
    if (field, value) == (DIMENSIONS, []):
        assert read_dimensions(folder) == []
        return
    with pytest.raises(ModelFolderError):
        read_dimensions(folder) if field == DIMENSIONS else load_model(folder)
