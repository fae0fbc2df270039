"""What is scored without any encoder."""

import random

import numpy as np
import pytest

from maskwright.finetuning.baselines import BagOfWords
from maskwright.finetuning.examples import Examples
from maskwright.finetuning.table_files import TableRow
from maskwright.finetuning.task import Labels
from maskwright.finetuning.text_tasks import Classification, Regression

NUMBERS = Labels(("number",), (1,))
KINDS = Labels(("no", "yes"), (1, 1))


def make_examples(texts: list[list[str]], targets: np.ndarray) -> Examples:
    roles = ("sentence1", "sentence2")
    rows = [TableRow("", dict(zip(roles, each, strict=False))) for each in texts]
    return Examples([], targets, rows=rows)


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
    sets = [make_examples(*learned), make_examples(*scored)]
    [found] = Regression().score_baselines(NUMBERS, ("spearman",), sets[0], sets[1:])
    assert found["bag of words"]["spearman"] > 0.9
    assert np.isnan(found["majority"]["spearman"]) or found["majority"]["spearman"] == 0


def test_each_set_is_scored_with_what_the_training_examples_gave() -> None:
    texts, targets = [["good one"], ["good two"], ["bad one"], ["bad two"]], np.array([1, 1, 0, 0])
    upside_down = [["bad bad"], ["good good"]], np.array([1, 0])
    train, other = make_examples(texts, targets), make_examples(*upside_down)
    right, wrong = Classification().score_baselines(KINDS, ("accuracy",), train, [train, other])
    assert right == {"majority": {"accuracy": 0.5}, "bag of words": {"accuracy": 1.0}}
    assert wrong["bag of words"] == {"accuracy": 0.0}


@pytest.mark.parametrize("sides", [1, 2])
def test_where_no_word_occurs_twice_the_majority_answers(sides: int) -> None:
    texts = [[f"a{number}{side}" for side in range(sides)] for number in range(3)]
    bag = BagOfWords("single_label_classification", texts, np.array([0, 1, 1]))
    assert bag([["a"] * sides] * 2) is None
    train, new = make_examples(texts, np.array([0, 1, 1])), [["a"] * sides] * 2
    held_out = make_examples(new, np.array([1, 0]))
    [found] = Classification().score_baselines(KINDS, ("accuracy",), train, [held_out])
    assert found["bag of words"] == found["majority"] == {"accuracy": 0.5}
