"""Vectors of tokens, of every layer, equal to those of transformers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from maskwright.errors import InputError
from maskwright.inference.embed import Embedder, embed

TEXTS = ["The small horse eats grass.", "", "A bird", "the cat " * 40]


@pytest.fixture
def folder(workplace: Path) -> Path:
    return workplace / "runs" / "small" / "model"


def test_embed_tokens_of_every_layer_are_those_of_transformers(folder: Path):
    theirs = AutoModel.from_pretrained(folder, output_hidden_states=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ours = Embedder(folder, "cpu")
    num_layers = ours.model.config.num_hidden_layers
    for layer in [*range(num_layers), None]:
        for text, found in zip(TEXTS, ours.embed_tokens(TEXTS, layer, 16), strict=True):
            given = tokenizer(text, return_tensors="pt", truncation=True, max_length=ours.longest)
            with torch.no_grad():
                output = theirs(**given)
            hidden = output.last_hidden_state if layer is None else output.hidden_states[layer]
            assert np.allclose(found.vectors, hidden[0, 1:-1].numpy(), atol=1e-4)
            assert len(found.tokens) == len(found.vectors)


@pytest.mark.parametrize("ids", [None, ["a", "b", "c", "d"]])
def test_embed_writes_a_row_for_each_token(folder: Path, tmp_path: Path, ids: list[str] | None):
    result = embed(folder, TEXTS, out=tmp_path / "v.npy", tokens=True, layer=1, ids=ids)
    found = Embedder(folder, "cpu").embed_tokens(TEXTS, 1)
    vectors = np.load(tmp_path / "v.npy")
    assert np.allclose(vectors, np.concatenate([one.vectors for one in found]), atol=1e-5)
    assert result.num_texts == len(TEXTS)
    names = ids or ["1", "2", "3", "4"]
    expected = [
        f"{name}:{n}"
        for name, one in zip(names, found, strict=True)
        for n in range(1, len(one.tokens) + 1)
    ]
    assert (tmp_path / "v.ids.txt").read_text().splitlines() == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"layer": 1},
        {"tokens": True, "layer": 99},
        {"tokens": True, "layer": -1},
        {"tokens": True, "pooling": "cls"},
        {"tokens": True, "normalize": False},
    ],
)
def test_wrong_settings_are_refused(folder: Path, tmp_path: Path, settings: dict):
    with pytest.raises(InputError):
        embed(folder, "a", out=tmp_path / "v.npy", **settings)
