import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from maskwright.attention_context import context_from_lengths
from maskwright.model.flops import count_flops_per_token, count_parameters
from maskwright.model.masked_lm import MaskedLanguageModel
from tests.model.helpers import random_ids, tiny_config


@pytest.mark.parametrize("preset", ["bert", "modernbert", "eurobert"])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_those_of_the_model(preset: str, tied: bool) -> None:
    config = tiny_config(preset=preset, tie_word_embeddings=tied)
    count = count_parameters(config)
    assert count.total == sum(p.numel() for p in MaskedLanguageModel(config).parameters())
    learned = (2 + 16) * 32 + 64 if preset == "bert" else 32 if preset == "modernbert" else 0
    assert count.embeddings == 64 * 32 + learned


@pytest.mark.parametrize("preset", ["bert", "modernbert", "eurobert", "ultrabert"])
def test_flops_are_those_that_torch_counts(preset: str) -> None:
    config = tiny_config(
        preset=preset, attention_backend="reference", attention_dropout=0.0, positions="learned"
    )
    model, context = MaskedLanguageModel(config), context_from_lengths([16, 16])
    with FlopCounterMode(display=False) as counter:
        model(random_ids(32), context, torch.arange(8)).sum().backward()
    counted = counter.get_total_flops()
    # The reference computes the scores of all 32 tokens with each other; the rest is exact.
    expected = count_flops_per_token(config, segment_length=32, masked_share=8 / 32) * 32
    assert counted == pytest.approx(expected)


def test_flops_of_relative_positions_are_those_that_torch_counts() -> None:
    config = tiny_config(preset="deberta-v2", attention_dropout=0.0, hidden_dropout=0.0)
    model, context = MaskedLanguageModel(config), context_from_lengths([16, 16])
    with FlopCounterMode(display=False) as counter:
        model(random_ids(32), context, torch.arange(8)).sum().backward()
    expected = count_flops_per_token(config, segment_length=16, masked_share=8 / 32) * 32
    # The queries, keys and (unused) values of 33 distances, once a layer: not counted by token.
    projecting = config.num_hidden_layers * 33 * 6 * 3 * config.hidden_size**2
    assert counter.get_total_flops() == pytest.approx(expected + projecting)


def test_a_window_makes_long_segments_cheaper() -> None:
    near, far = (tiny_config(local_attention=width) for width in (8, 1000))
    assert count_flops_per_token(near, 512, 0.15) < count_flops_per_token(far, 512, 0.15)
    assert count_flops_per_token(near, 4, 0.15) == count_flops_per_token(far, 4, 0.15)
