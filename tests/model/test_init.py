"""Initial weights, and the rows of a vocabulary that grows."""

import math
from typing import Any

import pytest
import torch

from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.pretraining.init_from import spread_layers, take_layers
from maskwright.pretraining.vocabulary_transfer import grow_vocabulary, mix_vocabulary
from tests.model.helpers import tiny_config
from tests.models import small_model


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


def test_a_tied_decoder_stays_tied() -> None:
    tied, untied = built(), built(tie_word_embeddings=False)
    assert tied.head.decoder.weight is tied.encoder.embeddings.word.weight
    assert not torch.equal(untied.head.decoder.weight, untied.encoder.embeddings.word.weight)


WORDS, DECODER, BIAS = (
    "encoder.embeddings.word.weight",
    "head.decoder.weight",
    "head.decoder.bias",
)


@pytest.mark.parametrize("tied", [True, False])
def test_rows_are_means(tied: bool) -> None:
    model = small_model(preset="modernbert", tie_word_embeddings=tied)
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    tensors[BIAS].normal_()
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    pieces = {60: [7], 64: [7, 9], 65: [10, 11, 12]}
    grown = grow_vocabulary(tensors, 128, pieces)
    tables = {WORDS, BIAS} if tied else {WORDS, DECODER, BIAS}
    for name, old in kept.items():
        assert torch.equal(tensors[name], old)
        if name not in tables:
            assert torch.equal(grown[name], old)
            continue
        assert grown[name].shape == (128, *old.shape[1:])
        assert torch.equal(grown[name][:60], old[:60])
        assert torch.equal(grown[name][61:64], old[61:])
        assert torch.equal(grown[name][60], old[7])
        assert torch.allclose(grown[name][64], (old[7] + old[9]) / 2)
        assert torch.allclose(grown[name][65], (old[10] + old[11] + old[12]) / 3)
        assert torch.allclose(grown[name][66:], old.mean(0).expand(62, *old.shape[1:]))


def test_a_vocabulary_may_have_room_already() -> None:
    model = small_model()
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    grown = grow_vocabulary(tensors, 64, {63: [5, 6]})
    assert torch.equal(grown[WORDS][:63], tensors[WORDS][:63])
    assert torch.equal(grown[WORDS][63], tensors[WORDS][5:7].mean(0))


@pytest.mark.parametrize(
    ("count", "total", "layers"),
    [(6, 12, [0, 2, 4, 7, 9, 11]), (2, 4, [0, 3]), (1, 3, [0]), (3, 3, [0, 1, 2])],
)
def test_layers_are_those_of_distilbert(count: int, total: int, layers: list[int]) -> None:
    assert spread_layers(count, total) == layers


def test_a_student_takes_every_nth_layer_with_all_around_it() -> None:
    teacher, student = small_model(1, num_hidden_layers=4), small_model(0, num_hidden_layers=2)
    assert take_layers(student, teacher) == [0, 3]
    theirs = teacher.state_dict()
    for name, tensor in student.state_dict().items():
        assert torch.equal(tensor, theirs[name.replace("blocks.1.", "blocks.3.")]), name
    student.head.decoder.weight.data += 1
    assert not torch.equal(student.head.decoder.weight, teacher.head.decoder.weight)


@pytest.mark.parametrize("change", [{"intermediate_size": 48}, {"qk_norm": True}])
def test_a_student_of_other_sizes_keeps_its_random_weights(change: dict[str, Any]) -> None:
    teacher, student = (
        small_model(1, num_hidden_layers=4, preset="bert"),
        small_model(0, num_hidden_layers=2, preset="bert", **change),
    )
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    assert take_layers(student, teacher) == []
    assert all(torch.equal(t, before[n]) for n, t in student.state_dict().items())


@pytest.mark.parametrize("tied", [True, False])
def test_the_bias_of_a_token_follows_it(tied: bool) -> None:
    model = small_model(preset="bert", tie_word_embeddings=tied)
    tensors = {name: p.detach().clone() for name, p in model.named_parameters()}
    tensors[BIAS][7] = 50.0
    mixed = mix_vocabulary(tensors, 40, {3: ([7], [1.0]), 4: ([7, 8], [0.5, 0.5])})
    assert mixed[BIAS][[3, 4]].tolist() == [50.0, 25.0]
    assert (DECODER in mixed) is not tied
