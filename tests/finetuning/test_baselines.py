"""What is scored without any encoder."""

import random

import numpy as np
import pytest

from maskwright.finetuning.baselines import BagOfWords, score_baselines
from maskwright.finetuning.labels import Labels

NUMBERS = Labels("regression", ("number",), (1,))
KINDS = Labels("classification", ("no", "yes"), (1, 1))


def draw_pairs(count: int, seed: int) -> tuple[list[list[str]], np.ndarray]:
    """Pairs of texts of 8 of 200 words, and how many of these they share."""
    draw = random.Random(seed)
    words = [f"w{number}" for number in range(200)]
    texts: list[list[str]] = []
    shared: list[int] = []
    for _ in range(count):
        first = draw.sample(words, 8)
        kept = draw.randint(0, 8)
        others = draw.sample(sorted(set(words) - set(first)), 8 - kept)
        texts.append([" ".join(first), " ".join([*first[:kept], *others])])
        shared.append(kept)
    return texts, np.array(shared, np.float32)


def test_a_bag_of_words_sees_what_two_texts_share() -> None:
    learned, scored = draw_pairs(500, 0), draw_pairs(200, 1)
    [found] = score_baselines(NUMBERS, ("spearman",), learned, [scored])
    assert found["bag of words"]["spearman"] > 0.9
    assert np.isnan(found["majority"]["spearman"]) or found["majority"]["spearman"] == 0


def test_each_set_is_scored_with_what_the_training_examples_gave() -> None:
    texts, targets = [["good one"], ["good two"], ["bad one"], ["bad two"]], np.array([1, 1, 0, 0])
    upside_down = [["bad bad"], ["good good"]], np.array([1, 0])
    right, wrong = score_baselines(
        KINDS, ("accuracy",), (texts, targets), [(texts, targets), upside_down]
    )
    assert right == {"majority": {"accuracy": 0.5}, "bag of words": {"accuracy": 1.0}}
    assert wrong["bag of words"] == {"accuracy": 0.0}


@pytest.mark.parametrize("sides", [1, 2])
def test_where_no_word_occurs_twice_the_majority_answers(sides: int) -> None:
    texts = [[f"a{number}{side}" for side in range(sides)] for number in range(3)]
    bag = BagOfWords(KINDS, texts, np.array([0, 1, 1]))
    assert bag([["a"] * sides] * 2).tolist() == [1, 1]
