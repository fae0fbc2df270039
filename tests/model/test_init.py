"""Initial weights."""

import math

import pytest
import torch

from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from tests.model.helpers import tiny_config


def built(seed: int = 0, **fields: object) -> MaskedLanguageModel:
    sizes = {"hidden_size": 128, "intermediate_size": 256}
    model = MaskedLanguageModel(tiny_config(**{**sizes, **fields}))
    initialize(model, seed)
    return model


def test_the_seed_alone_decides() -> None:
    torch.manual_seed(1)
    first = built(3).state_dict()
    torch.manual_seed(2)
    second, other = built(3).state_dict(), built(4).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    word = "encoder.embeddings.word.weight"
    assert not torch.equal(first[word], other[word])


@pytest.mark.parametrize("preset", ["bert", "modernbert", "eurobert"])
def test_scales_biases_norms_and_padding(preset: str) -> None:
    model = built(preset=preset, initializer_range=0.05, init_output="normal")
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            expected = 1.0 if name.endswith("norm.weight") else 0.0
            assert (parameter == expected).all(), name
        elif "token_type" not in name:
            # Cutting a normal at two deviations leaves 0.88 of its deviation.
            expected = 0.05 * (0.88 if preset == "modernbert" else 1.0)
            assert abs(parameter.std().item() / expected - 1) < 0.08, name
    word = model.encoder.embeddings.word.weight
    assert (word[0] == 0).all()
    assert (word[1] != 0).all()


def test_initialize_begins_the_norm_of_the_embeddings_where_it_is_told() -> None:
    model = built(preset="modernbert", init_embedding_norm=0.1)
    weights = {n: p for n, p in model.named_parameters() if n.endswith("norm.weight")}
    for name, weight in weights.items():
        assert (weight == (0.1 if "embeddings" in name else 1.0)).all(), name
    assert "encoder.embeddings.norm.weight" in weights


def test_truncation_cuts_at_the_factor() -> None:
    model = built(initializer_range=0.1, initializer_cutoff_factor=1.5)
    largest = max(p.abs().max().item() for p in model.parameters() if p.ndim == 2)
    assert 0.14 < largest <= 0.15


@pytest.mark.parametrize(("choice", "factor"), [("zero", 0), ("scaled", 1 / math.sqrt(6))])
def test_output_projections_have_a_scale_of_their_own(choice: str, factor: float) -> None:
    model = built(preset="bert", init_output=choice, initializer_range=0.1)
    for name, parameter in model.named_parameters():
        if name.endswith(("attention.output.weight", "mlp.output.weight")):
            assert abs(parameter.std().item() - 0.1 * factor) < 0.005, name
        elif name.endswith("qkv.weight"):
            assert abs(parameter.std().item() - 0.1) < 0.005, name
