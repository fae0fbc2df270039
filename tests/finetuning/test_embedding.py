"""Pairs that belong together: which are wrong answers to one another, and what is kept."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.embedding import (
    TEMPERATURE,
    ContrastiveFitting,
    Pairs,
    contrast,
    find_same,
)
from maskwright.finetuning.examples import encode_texts
from maskwright.tokenizer.template import ModelInput
from tests.finetuning.helpers import TOKENIZER, make_loaded

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


def make_pairs(second: str = "{}") -> Pairs:
    """A text with itself, which any encoder finds, or with something else."""
    texts = [f"the {a} sees the {b}" for a in ("cat", "dog", "tree") for b in ("log", "bed", "ed")]
    sides = ([(text,) for text in texts], [(second.format(text),) for text in texts])
    first, other = (encode_texts(side, TOKENIZER, 64)[0] for side in sides)
    return Pairs(first, other)


def fit(pairs: Pairs, rate: float) -> tuple[ContrastiveFitting, list[dict[str, Any]]]:
    config = FinetuneConfig(epochs=4, batch_size=9, learning_rate=rate, layer_decay=1.0)
    records: list[dict[str, Any]] = []
    model, pad_id = make_loaded().model, TOKENIZER.pad_id
    return ContrastiveFitting(model, pairs, pairs, pad_id, config, records.append), records


def test_a_ruined_model_is_kept_as_it_was() -> None:
    fitting, records = fit(make_pairs(), rate=10.0)
    weights = {name: one.clone() for name, one in fitting.model.state_dict().items()}
    before = fitting.score()
    best = fitting.run()
    assert records[-1]["found"] < 1 == before["found"]
    assert best == records[0] == {"seed": 0, "step": 0, "epoch": 0.0, "seconds": 0.0, **before}
    after = fitting.model.state_dict()
    assert all(torch.equal(weights[name], after[name]) for name in weights)


def test_what_scored_best_is_kept() -> None:
    fitting, records = fit(make_pairs("and {} and that did"), rate=1e-3)
    best = fitting.run()
    assert best["step"] > 0
    assert best == max(records, key=lambda one: (one["found"], -one["valid_loss"]))
    assert fitting.score() == {name: best[name] for name in ("found", "candidates", "valid_loss")}


def test_another_pair_with_the_same_text_is_neither_found_nor_missed() -> None:
    """Of (A, B) and (B, A), the nearest to A is A, in the pair that is no wrong answer."""
    pairs = make_pairs("and {} and that did")
    one, other = pairs.first[:1], pairs.second[:1]
    fitting, _ = fit(Pairs(one + other, other + one), rate=1e-3)
    assert fitting.score() == {"found": 1, "candidates": 2, "valid_loss": 0}
