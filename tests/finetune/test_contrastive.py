"""Pairs that belong together: which are wrong answers to one another, and what is kept."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from maskwright.finetune.contrastive import TEMPERATURE, contrast, find_same
from maskwright.tokenizer.template import ModelInput

TEXT_PAIRS = st.lists(st.tuples(*[st.sampled_from("ABCDEFG")] * 2), min_size=1, max_size=8)


def encode(texts: list[str]) -> list[ModelInput]:
    return [ModelInput([ord(letter) for letter in text], [0] * len(text), 0) for text in texts]


def find_same_slowly(pairs: list[tuple[str, str]]) -> list[list[bool]]:
    return [[not set(one).isdisjoint(other) for other in pairs] for one in pairs]


def contrast_slowly(first: Tensor, second: Tensor, same: list[list[bool]]) -> float:
    """Sums over what each text is compared with: its own, and all that are not the same."""
    total, count = 0.0, len(first)
    for left, right in ((first, second), (second, first)):
        for i in range(count):
            logits = {
                j: torch.cosine_similarity(left[i], right[j], dim=0).item() / TEMPERATURE
                for j in range(count)
                if i == j or not same[i][j]
            }
            total += math.log(sum(map(math.exp, logits.values()))) - logits[i]
    return total / (2 * count)


def find(pairs: list[tuple[str, str]]) -> Tensor:
    return find_same(encode([a for a, _ in pairs]), encode([b for _, b in pairs]))


@given(TEXT_PAIRS)
def test_pairs_are_the_same_if_they_share_any_text(pairs: list[tuple[str, str]]) -> None:
    same = find(pairs)
    assert same.tolist() == find_same_slowly(pairs)
    assert torch.equal(same, same.T)
    assert same.diagonal().all()


@given(TEXT_PAIRS, st.integers(0, 9))
def test_the_loss_is_that_of_its_slow_twin(pairs: list[tuple[str, str]], seed: int) -> None:
    torch.manual_seed(seed)
    first, second = torch.randn(2, len(pairs), 4, dtype=torch.float64)
    found = contrast(first, second, find(pairs)).item()
    assert found == pytest.approx(contrast_slowly(first, second, find_same_slowly(pairs)))


def test_a_text_is_no_wrong_answer_to_itself() -> None:
    """Of (A, B) and (C, A) the first A would find the second one, which is as near as can be."""
    vectors = dict(zip("ABCDE", torch.eye(5), strict=True))
    pairs = [("A", "B"), ("C", "A"), ("D", "E")]
    first, second = (torch.stack([vectors[pair[side]] for pair in pairs]) for side in (0, 1))
    chance = math.log(2)  # each has one wrong answer, (D, E) two, and all are as far
    expected = (2 * chance + math.log(3)) / 3
    assert contrast(first, second, find(pairs)).item() == pytest.approx(expected)
    assert contrast(first, second).item() > expected + 5
