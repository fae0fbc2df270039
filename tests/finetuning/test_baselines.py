"""What is scored without any encoder."""

import math
import random

import numpy as np
import pytest

from maskwright.corpus.table_files import TableRow
from maskwright.finetuning.examples import Examples
from maskwright.finetuning.task import Labels
from maskwright.finetuning.text_tasks import Classification, Regression, TextTask


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


def score(task: TextTask, train: Examples, held_out: Examples) -> dict[str, float]:
    metric = "spearman" if isinstance(task, Regression) else task.metrics[0]
    labels = Labels(("no", "yes"), (1, 1))
    fitted = task.fit_baselines(labels, train)
    return {
        name: task.score(labels, [metric], held_out, answer(held_out))[metric]
        for name, answer in fitted.items()
    }


def test_a_bag_of_words_sees_what_two_texts_share():
    found = score(Regression(), *(make_examples(*draw_pairs(n, n)) for n in (500, 200)))
    assert found["bag of words"] > 0.9
    assert math.isnan(found["majority"])  # the correlation with a constant


def test_each_set_is_scored_with_what_the_training_examples_gave():
    texts, targets = [["good one"], ["good two"], ["bad one"], ["bad two"]], np.array([1, 1, 0, 0])
    train, task = make_examples(texts, targets), Classification()
    upside_down = make_examples([["bad bad"], ["good good"]], np.array([1, 0]))
    assert score(task, train, train) == {"majority": 0.5, "bag of words": 1.0}
    assert score(task, train, upside_down)["bag of words"] == 0.0


@pytest.mark.parametrize("sides", [1, 2])
def test_where_no_word_occurs_twice_the_majority_answers(sides: int):
    texts = [[f"a{number}{side}" for side in range(sides)] for number in range(3)]
    train = make_examples(texts, np.array([0, 1, 1]))
    held_out = make_examples([["a"] * sides] * 2, np.array([1, 0]))
    assert score(Classification(), train, held_out) == {"majority": 0.5, "bag of words": 0.5}
