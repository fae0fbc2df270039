"""The texts of a pair that are encoded apart, and how they compare."""

import math
from dataclasses import replace

import pytest
import torch

from maskwright.attention_context import context_from_lengths
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.model.classifier import Classifier, compare_texts, separate_texts, weigh
from tests.model.helpers import tiny_model

LENGTHS = ((3, 2), (1, 4), (2, 1))  # of two texts in each row
IDS = (torch.tensor([5, 6, 7, 8, 9]), torch.tensor([5, 9, 8, 7, 6]), torch.tensor([8, 9, 8, 0, 0]))
TYPES = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 0, 0]]).flatten()
FIRST, SECOND = ((1, 1, 0, 0), (1, 1, 1, 0)), ((0, 0, 1, 1), (0, 0, 0, 0))  # which tokens
CONTEXT = context_from_lengths([sum(lengths) for lengths in LENGTHS])


def make_classifier(preset: str) -> Classifier:
    config = FinetuneConfig(pooling="bi")
    return build_classifier(tiny_model(preset=preset), config, "text", 3, seed=0).eval()


@pytest.mark.parametrize("preset", ["bert", "eurobert", "modernbert"])
@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_each_text_of_a_pair_is_encoded_as_if_alone(preset: str, backend: str) -> None:
    model = make_classifier(preset)
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
    matches = compare_texts((layer, layer), *weights)
    torch.testing.assert_close(matches[0], torch.ones(8))
    assert matches[1].abs().max() == 0


def test_matches_are_those_of_their_slow_twin() -> None:
    layer = torch.randn(1, 5, 6, generator=torch.Generator().manual_seed(1))
    weights = torch.tensor([[0.7, 0.3, 0, 0, 0]]), torch.tensor([[0, 0, 0.5, 0.1, 0.4]])
    cosines = torch.cosine_similarity(layer[0, :2, None], layer[0, None, 2:], dim=-1).clamp(min=0)
    expected = [
        float(sum(weight * best**power for weight, best in zip(one[one > 0], most, strict=True)))
        for one, most in zip(weights, (cosines.amax(1), cosines.amax(0)), strict=True)
        for power in (1, 4)
    ]
    assert compare_texts((layer,), *weights)[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_weights_are_a_softmax_over_a_text() -> None:
    logits, inside = torch.tensor([[0.0, 1.0, 9.0]]), torch.tensor([[True, True, False]])
    expected = torch.tensor([[1.0, math.e, 0.0]]) / (1 + math.e)
    torch.testing.assert_close(weigh(logits, inside), expected)


@pytest.mark.parametrize("preset", ["bert", "eurobert"])
def test_padding_changes_no_answer(preset: str) -> None:
    model = make_classifier(preset)
    whole = model(torch.cat(IDS), CONTEXT, TYPES)
    alone = model(IDS[2][:3], context_from_lengths([3]), TYPES[10:13])
    torch.testing.assert_close(whole[2:], alone, atol=1e-5, rtol=1e-5)
