"""What a task's examples give without any encoder: a model that loses to it is not worth having.

N examples, K labels.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.corpus.extras import import_extra
from maskwright.finetune.conll import TaggedSentence
from maskwright.finetune.labels import Labels
from maskwright.finetune.metrics import Metric
from maskwright.finetune.scoring import score_answers, score_tags

_NEEDED_BY = "a baseline"


def score_majority(
    labels: Labels, metrics: Sequence[Metric], train: NDArray[Any], valid: NDArray[Any]
) -> dict[str, float]:
    """Always the most frequent label, each label that most have, or the mean number."""
    if labels.task == "regression":
        answers = np.full(len(valid), train.mean(), np.float32)
    elif labels.task == "multilabel":
        answers = np.broadcast_to(train.mean(0) > 0.5, valid.shape).astype(np.float32)
    else:
        answers = np.full(len(valid), np.bincount(train).argmax())
    return score_answers(metrics, valid, answers)


def score_bag_of_words(
    labels: Labels,
    metrics: Sequence[Metric],
    train: tuple[Sequence[Sequence[str]], NDArray[Any]],
    valid: tuple[Sequence[Sequence[str]], NDArray[Any]],
) -> dict[str, float]:
    """Logistic (for numbers: ridge) regression on the words and word pairs of each text.

    Args:
        train, valid: one or two texts of each example, and the targets.
    """
    linear: Any = import_extra("sklearn.linear_model", "finetune", _NEEDED_BY)
    multiclass: Any = import_extra("sklearn.multiclass", "finetune", _NEEDED_BY)
    columns: list[Any] = []
    for side in range(len(train[0][0])):
        learn: Any = import_extra("sklearn.feature_extraction.text", "finetune", _NEEDED_BY)
        # Words of one letter count, too; the built-in pattern passes over them.
        bag = learn.TfidfVectorizer(ngram_range=(1, 2), min_df=2, token_pattern=r"(?u)\b\w+\b")
        try:
            learnt = bag.fit_transform([texts[side] for texts in train[0]])
        except ValueError:  # no word occurs twice
            continue
        columns.append((learnt, bag.transform([texts[side] for texts in valid[0]])))
    if not columns:
        return score_majority(labels, metrics, train[1], valid[1])
    sparse: Any = import_extra("scipy.sparse", "finetune", _NEEDED_BY)
    known, new = (sparse.hstack([pair[i] for pair in columns]).tocsr() for i in (0, 1))
    model = _build_logistic(linear)
    if labels.task == "regression":
        model = linear.Ridge()
    if labels.task == "multilabel":
        model = multiclass.OneVsRestClassifier(model)
    answers = model.fit(known, train[1]).predict(new)
    return score_answers(metrics, valid[1], np.asarray(answers))


def _build_logistic(linear: Any) -> Any:
    return linear.LogisticRegression(C=10.0, max_iter=1000)


def score_words(
    labels: Labels, train: Sequence[TaggedSentence], valid: Sequence[TaggedSentence]
) -> dict[str, float]:
    """Logistic regression on each word, its neighbours, its ending and its capitals."""
    features: Any = import_extra("sklearn.feature_extraction", "finetune", _NEEDED_BY)
    linear: Any = import_extra("sklearn.linear_model", "finetune", _NEEDED_BY)
    bag, model = features.DictVectorizer(), _build_logistic(linear)
    known = bag.fit_transform([found for one in train for found in describe_words(one.words)])
    numbers = [labels.encode_tags(one.tags, one.place) for one in train]
    model.fit(known, np.concatenate(numbers))
    targets = [labels.encode_tags(one.tags, one.place) for one in valid]
    new = bag.transform([found for one in valid for found in describe_words(one.words)])
    answers = np.split(model.predict(new), np.cumsum([len(one) for one in targets])[:-1])
    return score_tags(labels, targets, [one.tolist() for one in answers])


def score_outside(labels: Labels, valid: Sequence[TaggedSentence]) -> dict[str, float]:
    """Always the most frequent tag."""
    targets = [labels.encode_tags(one.tags, one.place) for one in valid]
    most = int(np.argmax(labels.counts))
    return score_tags(labels, targets, [[most] * len(one) for one in targets])


def describe_words(words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What the baseline sees of each word."""
    padded = ["<s>", *words, "</s>"]
    for before, word, after in zip(padded, padded[1:], padded[2:], strict=False):
        yield {
            "word": word.lower(),
            "before": before.lower(),
            "after": after.lower(),
            "ending": word[-3:].lower(),
            "capital": word[:1].isupper(),
            "upper": word.isupper(),
            "digit": any(character.isdigit() for character in word),
        }
