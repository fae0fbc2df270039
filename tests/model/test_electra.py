import dataclasses
import math

import pytest
import torch

from maskwright.errors import ConfigError
from maskwright.model.config import resolve_config, to_model_config
from maskwright.model.electra import Discriminator, GeneratorAndDiscriminator, narrow_config
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.flops import (
    count_flops_per_token,
    count_parameters,
    count_token_head_flops_per_token,
)
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.pretraining.vocabulary_transfer import grow_vocabulary
from tests.model.helpers import tiny_config
from tests.twins import PACKED, ROW, fill_rows, pack


def test_embeddings_of_another_width() -> None:
    config = tiny_config(preset="electra", embedding_size=24)
    model = MaskedLanguageModel(config)
    count = count_parameters(config)
    assert count.total == sum(p.numel() for p in model.parameters())
    assert count.embeddings == 64 * 24 + 16 * 24 + 2 * 24 + 2 * 24 + 32 * 24 + 32


def test_a_narrow_model_states_itself_and_learns_new_words() -> None:
    config = tiny_config(preset="electra", embedding_size=24)
    stated = to_model_config(config)
    assert resolve_config(stated, vocab_size=64, max_seq_length=16) == config
    model = MaskedLanguageModel(config)
    initialize(model, 0)
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    larger = dataclasses.replace(config, vocab_size=72)
    grown = MaskedLanguageModel.from_tensors(larger, grow_vocabulary(tensors, 72, {64: [5, 6]}))
    words, old = grown.encoder.embeddings.word.weight, tensors["encoder.embeddings.word.weight"]
    assert torch.equal(words[:64], old)
    assert torch.equal(words[64], old[5:7].mean(0))
    assert grown.head.decoder.bias.shape == (72,)


def test_the_width_of_the_layers_is_no_other_width() -> None:
    assert tiny_config(embedding_size=32) == tiny_config()
    assert tiny_config().embedding_width == 32


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"embedding_size": 0}, "embedding_size = 0 must be at least 1"),
        ({"embedding_size": 1 << 20}, "embedding_size = 1048576 must be at most"),
        ({"embedding_size": 24, "head_transform": False},
         "embedding_size = 24 differs from model.hidden_size = 32, but no layer"),
        ({"embedding_size": 23, "positions": "sinusoidal"},
         "embedding_size = 23 must be even for sinusoidal positions"),
    ],
)  # fmt: skip
def test_widths_that_are_impossible(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        tiny_config(**fields)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.25, (1, 8, 12)), (0.5, (2, 16, 24)), (1.0, (4, 32, 48)), (0.01, (1, 2, 1))],
)
def test_the_generator_is_narrower(share: float, expected: tuple[int, int, int]) -> None:
    config = tiny_config(preset="electra", embedding_size=16)
    narrow = narrow_config(config, share)
    sizes = (narrow.num_attention_heads, narrow.hidden_size, narrow.intermediate_size)
    assert sizes == expected
    assert narrow.embedding_width == 16
    assert (narrow.embedding_size is None) == (narrow.hidden_size == 16)
    assert narrow.num_hidden_layers == config.num_hidden_layers


def test_what_is_shared_is_drawn_and_counted_once() -> None:
    config = tiny_config(preset="electra", embedding_size=16)
    model = GeneratorAndDiscriminator(config, narrow_config(config, 0.25))
    initialize(model, 3)
    names = dict(model.named_parameters())
    assert not any(name.startswith("generator.encoder.embeddings") for name in names)
    assert "generator.head.decoder.weight" not in names
    words = model.discriminator.encoder.embeddings.word.weight
    assert torch.equal(words[0], torch.zeros(16))
    assert words[1:].std().item() == pytest.approx(0.02, rel=0.1)
    assert names["generator.head.transform.norm.weight"].eq(1).all()
    assert names["discriminator.head.output.bias"].eq(0).all()
    num_stacked = count_stacked_matrices(model)
    assert num_stacked == {
        f"{part}.encoder.blocks.{layer}.attention.qkv.weight": 3
        for part in ("discriminator", "generator")
        for layer in range(3)
    }


def test_an_untrained_discriminator_has_no_opinion() -> None:
    model = Discriminator(tiny_config(preset="electra"))
    initialize(model, 0)
    ids, _ = fill_rows(PACKED, 0)
    tails = [(*row, ROW - sum(row)) if sum(row) < ROW else row for row in PACKED]
    scores = model.eval()(ids.flatten(), pack(tails))
    assert scores.shape == (ids.numel(),)
    losses = torch.nn.functional.softplus(scores)
    assert losses.mean().item() == pytest.approx(math.log(2), abs=0.05)


def test_work_counts_every_product() -> None:
    """2 forward and 4 backward a weight and token; all but norms, biases and tables multiply."""
    config = tiny_config(preset="electra", embedding_size=24)
    model = Discriminator(config)
    weights = sum(
        p.numel() for n, p in model.named_parameters() if p.ndim == 2 and ".embeddings." not in n
    )
    attention = 12 * 32 * 10 * 3
    assert count_token_head_flops_per_token(config, 10) == 6 * weights + attention
    head = 32 * 24 + 24 * 64
    assert count_flops_per_token(config, 10, 1.0) == 6 * (weights - 32 * 33 + head) + attention
