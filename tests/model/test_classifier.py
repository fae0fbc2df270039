"""Heads that label by several layers, and the texts of a pair that are encoded apart."""

from dataclasses import replace

import pytest
import torch

from maskwright.attention_context import context_from_lengths
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.model.classifier import (
    Classifier,
    compare_texts,
    pool_layers,
    separate_texts,
    weigh,
)
from maskwright.model.config import Level, Pooling
from tests.model.helpers import tiny_model

LENGTHS = ((3, 2), (1, 4), (2, 1))  # of two texts in each row
IDS = (torch.tensor([5, 6, 7, 8, 9]), torch.tensor([5, 9, 8, 7, 6]), torch.tensor([8, 9, 8, 0, 0]))
TYPES = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 0, 0]]).flatten()
FIRST, SECOND = ((1, 1, 0, 0), (1, 1, 1, 0)), ((0, 0, 1, 1), (0, 0, 0, 0))  # which tokens
LOGITS = ((0.0, 0.0, 0.0, 9.0), (0.0, 20.0, 0.0, 9.0))  # the last token is padding
CONTEXT = context_from_lengths([sum(lengths) for lengths in LENGTHS])


def make_classifier(preset: str, pooling: Pooling, level: Level = "text") -> Classifier:
    config = FinetuneConfig(pooling=pooling)
    return build_classifier(tiny_model(preset=preset), config, level, 3, seed=0).eval()


@pytest.mark.parametrize("preset", ["bert", "eurobert", "modernbert"])
@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_each_text_of_a_pair_is_encoded_as_if_alone(preset: str, backend: str) -> None:
    model = make_classifier(preset, "bi")
    model.encoder.config = replace(model.config, attention_backend=backend)
    context = separate_texts(CONTEXT, TYPES)
    hidden = model.encoder(torch.cat(IDS), context).view(len(IDS), 5, -1)
    for row, (ids, (first, second)) in enumerate(zip(IDS, LENGTHS, strict=True)):
        for start, end in ((0, first), (first, first + second)):
            alone = model.encoder(ids[start:end], context_from_lengths([end - start]))
            torch.testing.assert_close(hidden[row, start:end], alone, atol=1e-5, rtol=1e-5)


def test_equal_texts_match_in_full_and_an_empty_one_in_nothing() -> None:
    layer = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
    layer[0, 2:] = layer[0, :2]
    logits = torch.tensor([[0.0, 1, 0, 1], [0, 0, 0, 0]])
    first, second = torch.tensor(FIRST) == 1, torch.tensor(SECOND) == 1
    weights = weigh(logits, first), weigh(logits, second)
    features = compare_texts((layer, layer), *weights)
    difference, product, matches = features.split([24, 24, 8], 1)
    assert difference[0].abs().max() == 0
    torch.testing.assert_close(matches[0], torch.ones(8))
    torch.testing.assert_close(product[0], pool_layers((layer, layer), weights[0])[0] ** 2)
    assert features.isfinite().all()
    assert matches[1].abs().max() == 0


def test_tokens_with_higher_weights_count_more() -> None:
    layer = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    inside = torch.tensor([[True, True, True, False]])
    even, one = (pool_layers((layer,), weigh(torch.tensor([w]), inside)) for w in LOGITS)
    torch.testing.assert_close(even[0, :6], layer[0, :3].mean(0))
    torch.testing.assert_close(one[0, :6], layer[0, 1])
    assert torch.equal(even[0, 6:], layer[0, :3].amax(0))
    assert torch.equal(even[0, 6:], one[0, 6:])


def test_a_token_has_the_vectors_of_two_layers() -> None:
    model, positions = make_classifier("eurobert", "layers", "token"), torch.tensor([1, 6])
    logits = model(torch.cat(IDS), CONTEXT, TYPES, positions)
    torch.testing.assert_close(model(torch.cat(IDS), CONTEXT, TYPES)[positions], logits)
    features = model.encoder.embeddings.word.weight[[6, 9]], model.encoder(torch.cat(IDS), CONTEXT)
    expected = model.head.output(torch.cat((features[0], features[1][positions]), 1))
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_a_text_has_weighted_mean_and_maximum_of_two_layers_without_padding() -> None:
    model = make_classifier("bert", "layers")
    whole = model(torch.cat(IDS), CONTEXT, TYPES)
    alone = model(IDS[2][:3], context_from_lengths([3]), torch.tensor([0, 0, 1]))
    torch.testing.assert_close(whole[2:], alone, atol=1e-5, rtol=1e-5)
