"""What a task's examples give without any encoder: a model that loses to it is not worth having.

N examples, K labels.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.extras import import_extra
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.labels import Labels
from maskwright.finetuning.metrics import Metric
from maskwright.finetuning.scoring import score_answers, score_tags

_NEEDED_BY = "a baseline"


Texts = Sequence[Sequence[str]]  # one or two of each example


def score_baselines(
    labels: Labels,
    metrics: Sequence[Metric],
    train: tuple[Texts, NDArray[Any]],
    held_out: Sequence[tuple[Texts, NDArray[Any]]],
) -> list[dict[str, dict[str, float]]]:
    """The scores of both baselines on each set of held-out examples, texts and targets."""
    texts, targets = train
    bag = BagOfWords(labels, texts, targets)
    return [
        {
            "majority": score_answers(metrics, wanted, answer_majority(labels, targets, wanted)),
            "bag of words": score_answers(metrics, wanted, bag(new)),
        }
        for new, wanted in held_out
    ]


def answer_majority(labels: Labels, train: NDArray[Any], wanted: NDArray[Any]) -> NDArray[Any]:
    """Always the most frequent label, each label that most have, or the mean number."""
    if labels.task == "regression":
        return np.full(len(wanted), train.mean(), np.float32)
    if labels.task == "multilabel":
        return np.broadcast_to(train.mean(0) > 0.5, wanted.shape).astype(np.float32)
    return np.full(len(wanted), np.bincount(train).argmax())


class BagOfWords:
    """Logistic (for numbers: ridge) regression on the words and word pairs of each text.

    Of two texts also on what they share, and on their cosine: a linear model of two bags side by
    side sees nothing of what makes them a pair.
    """

    def __init__(self, labels: Labels, texts: Texts, targets: NDArray[Any]) -> None:
        linear: Any = import_extra("sklearn.linear_model", "finetune", _NEEDED_BY)
        multiclass: Any = import_extra("sklearn.multiclass", "finetune", _NEEDED_BY)
        learn: Any = import_extra("sklearn.feature_extraction.text", "finetune", _NEEDED_BY)
        self._sparse: Any = import_extra("scipy.sparse", "finetune", _NEEDED_BY)
        self._labels, self._targets = labels, targets
        # Words of one letter count, too; the built-in pattern passes over them.
        self._bag = learn.TfidfVectorizer(
            ngram_range=(1, 2), min_df=2, token_pattern=r"(?u)\b\w+\b"
        )
        self._model: Any = _build_logistic(linear)
        if labels.task == "regression":
            self._model = linear.Ridge()
        if labels.task == "multilabel":
            self._model = multiclass.OneVsRestClassifier(self._model)
        try:
            self._bag.fit([text for each in texts for text in each])
        except ValueError:  # no word occurs twice
            self._model = None
        else:
            self._model.fit(self._describe(texts), targets)

    def __call__(self, texts: Texts) -> NDArray[Any]:
        """The answers; those of the majority if no word of the training examples occurs twice."""
        if self._model is None:
            wanted = np.zeros((len(texts), *self._targets.shape[1:]))
            return answer_majority(self._labels, self._targets, wanted)
        return np.asarray(self._model.predict(self._describe(texts)))

    def _describe(self, texts: Texts) -> Any:
        bags = [self._bag.transform(side) for side in zip(*texts, strict=True)]
        if len(bags) == 2:
            shared = bags[0].multiply(bags[1])
            bags += [shared, self._sparse.csr_matrix(shared.sum(1))]
        return self._sparse.hstack(bags).tocsr()


def _build_logistic(linear: Any) -> Any:
    return linear.LogisticRegression(C=10.0, max_iter=1000)


def score_tag_baselines(
    labels: Labels,
    train: Sequence[TaggedSentence],
    held_out: Sequence[Sequence[TaggedSentence]],
) -> list[dict[str, dict[str, float]]]:
    """The same for tags of words, on each set of held-out sentences."""
    answers = zip(held_out, answer_words(labels, train, held_out), strict=True)
    return [
        {"majority": score_outside(labels, new), "bag of words": score_found(labels, new, found)}
        for new, found in answers
    ]


def answer_words(
    labels: Labels,
    train: Sequence[TaggedSentence],
    held_out: Sequence[Sequence[TaggedSentence]],
) -> Iterator[list[int]]:
    """Logistic regression on each word, its neighbours, its ending and its capitals.

    Yields the tags of all words of each set, one sentence after the other.
    """
    features: Any = import_extra("sklearn.feature_extraction", "finetune", _NEEDED_BY)
    linear: Any = import_extra("sklearn.linear_model", "finetune", _NEEDED_BY)
    bag, model = features.DictVectorizer(), _build_logistic(linear)
    known = bag.fit_transform([found for one in train for found in describe_words(one.words)])
    numbers = [labels.encode_tags(one.tags, one.place) for one in train]
    model.fit(known, np.concatenate(numbers))
    for sentences in held_out:
        new = bag.transform([found for one in sentences for found in describe_words(one.words)])
        yield model.predict(new).tolist()


def score_outside(labels: Labels, valid: Sequence[TaggedSentence]) -> dict[str, float]:
    """Always the most frequent tag."""
    num_words = sum(len(one.words) for one in valid)
    return score_found(labels, valid, [int(np.argmax(labels.counts))] * num_words)


def score_found(
    labels: Labels, valid: Sequence[TaggedSentence], found: Sequence[int]
) -> dict[str, float]:
    """The metrics of tags found for all words of some sentences."""
    targets = [labels.encode_tags(one.tags, one.place) for one in valid]
    each = iter(found)
    return score_tags(labels, targets, [list(islice(each, len(one))) for one in targets])


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
