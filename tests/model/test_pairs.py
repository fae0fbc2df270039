"""The head that judges pairs of texts, beside the one that guesses hidden words."""

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from maskwright.attention_context import context_from_lengths
from maskwright.errors import ConfigError
from maskwright.model.config import ModelConfig, resolve_config
from maskwright.model.flops import count_flops_per_token, count_parameters
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from tests.model.helpers import random_ids, tiny_config, with_pair_head

MASKED, PAIRS = torch.tensor([3, 20, 20, 0]), torch.tensor([16, 0])
CONTEXT = context_from_lengths([16, 16])
TYPES = (torch.arange(32) % 16 > 7).long()


@pytest.mark.parametrize("preset", ["bert", "modernbert"])
def test_both_heads_say_what_they_say_alone(preset: str) -> None:
    model, ids = with_pair_head(preset=preset, type_vocab_size=2), random_ids(32)
    logits = model(ids, CONTEXT, MASKED, TYPES, PAIRS)
    assert (logits.masked.shape, logits.pairs.shape) == ((4, 64), (2, 2))
    torch.testing.assert_close(logits.masked, model(ids, CONTEXT, MASKED, TYPES))
    hidden = model.encoder(ids, CONTEXT, TYPES)
    assert model.pair_head is not None
    torch.testing.assert_close(logits.pairs, model.pair_head(hidden[PAIRS]))


def test_a_pair_sees_its_own_texts_alone() -> None:
    model, ids = with_pair_head(preset="bert"), random_ids(32)
    before = model(ids, CONTEXT, MASKED, TYPES, PAIRS).pairs
    ids[3] += 1
    after = model(ids, CONTEXT, MASKED, TYPES, PAIRS).pairs
    assert torch.equal(before[0], after[0])  # of the other row
    assert not torch.allclose(before[1], after[1])
    assert not torch.allclose(before, model(ids, CONTEXT, MASKED, 1 - TYPES, PAIRS).pairs)


def test_a_model_without_the_head_has_none_of_its_parameters() -> None:
    config = tiny_config(preset="bert")
    other = dataclasses.replace(config, sentence_pair_head=True)
    plain, paired = MaskedLanguageModel(config), MaskedLanguageModel(other)
    initialize(plain, 3)
    initialize(paired, 3)
    more = dict(paired.named_parameters())
    for name, parameter in plain.named_parameters():
        assert torch.equal(more.pop(name), parameter), name
    assert sorted(more) == [
        f"pair_head.{part}.{kind}"
        for part in ("classifier", "pooler")
        for kind in ("bias", "weight")
    ]
    assert more["pair_head.pooler.weight"].std().item() == pytest.approx(0.02, rel=0.1)
    assert count_parameters(other).head - count_parameters(config).head == 32 * 33 + 2 * 33


def test_flops_are_those_that_torch_counts() -> None:
    model = with_pair_head(preset="bert", attention_backend="reference", attention_dropout=0.0)
    with FlopCounterMode(display=False) as counter:
        logits = model(random_ids(32), CONTEXT, torch.arange(8), TYPES, PAIRS)
        (logits.masked.sum() + logits.pairs.sum()).backward()
    expected = count_flops_per_token(model.config, 32, masked_share=8 / 32, pair_share=2 / 32)
    assert counter.get_total_flops() == pytest.approx(expected * 32)


def test_texts_need_two_token_types() -> None:
    for config in (ModelConfig(), ModelConfig(preset="roberta")):
        with pytest.raises(ConfigError) as caught:
            resolve_config(config, vocab_size=64, max_seq_length=16, sentence_pair_head=True)
        assert str(caught.value).startswith("model.type_vocab_size = ")
        assert "must be at least 2, one for each text" in str(caught.value)
        assert str(caught.value).endswith("Set it to 2.")
