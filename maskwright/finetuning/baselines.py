"""Baselines without an encoder: a model that loses to a bag of words is not worth deploying."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.extras import import_extra
from maskwright.model.config import ProblemType

_NEEDED_BY = "a baseline"
Texts = Sequence[Sequence[str]]  # one or two texts per example


def build_linear(problem: ProblemType) -> Any:
    """Return an unfitted linear model of scikit-learn for the targets of a problem."""
    linear: Any = import_extra("sklearn.linear_model", "finetune", _NEEDED_BY)
    if problem == "regression":
        return linear.Ridge()
    logistic = linear.LogisticRegression(C=10.0, max_iter=1000)
    if problem == "single_label_classification":
        return logistic
    multiclass: Any = import_extra("sklearn.multiclass", "finetune", _NEEDED_BY)
    return multiclass.OneVsRestClassifier(logistic)


def predict_constant(problem: ProblemType, targets: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the most frequent target, or the mean number, for `count` examples.

    Of several labels, these are the ones that more than half of the examples have.
    """
    if problem == "regression":
        return np.full(count, targets.mean(), np.float32)
    if problem == "single_label_classification":
        return np.full(count, np.bincount(targets).argmax())
    return np.broadcast_to(targets.mean(0) > 0.5, (count, targets.shape[1])).astype(np.float32)


class BagOfWords:
    """A linear model on TF-IDF features: the words and word bigrams of each text.

    For pairs of texts, the words that they share and their cosine are features too: a linear model
    cannot compare two concatenated bags of words.

    Args:
        texts, targets: the training examples.
    """

    def __init__(self, problem: ProblemType, texts: Texts, targets: NDArray[Any]) -> None:
        extraction: Any = import_extra("sklearn.feature_extraction.text", "finetune", _NEEDED_BY)
        self._sparse: Any = import_extra("scipy.sparse", "finetune", _NEEDED_BY)
        pattern = r"(?u)\b\w+\b"  # scikit-learn's default drops words of one letter
        self._bag = extraction.TfidfVectorizer(ngram_range=(1, 2), min_df=2, token_pattern=pattern)
        self._problem: ProblemType = problem
        self._targets, self._model = targets, build_linear(problem)
        try:
            self._bag.fit([text for each in texts for text in each])
        except ValueError:  # no word occurs twice
            self._model = None
        else:
            self._model.fit(self._describe(texts), targets)

    def __call__(self, texts: Texts) -> NDArray[Any]:
        """Return the predictions; constant ones if no word of the training texts occurs twice."""
        if self._model is None:
            return predict_constant(self._problem, self._targets, len(texts))
        return np.asarray(self._model.predict(self._describe(texts)))

    def _describe(self, texts: Texts) -> Any:
        bags = [self._bag.transform(side) for side in zip(*texts, strict=True)]
        if len(bags) == 2:
            shared = bags[0].multiply(bags[1])
            bags += [shared, self._sparse.csr_matrix(shared.sum(1))]
        return self._sparse.hstack(bags).tocsr()


class TagFeatures:
    """Logistic regression on each word, its neighbors, its suffix and its capitalization.

    Args:
        sentences: the words of the training examples.
        tags: the tag id of each word.
    """

    def __init__(self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[int]]) -> None:
        extraction: Any = import_extra("sklearn.feature_extraction", "finetune", _NEEDED_BY)
        self._bag = extraction.DictVectorizer()
        self._model = build_linear("single_label_classification")
        known = self._bag.fit_transform([word for one in sentences for word in describe_words(one)])
        self._model.fit(known, np.concatenate(tags))

    def __call__(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return the predicted tag of each word of each sentence."""
        described = [word for one in sentences for word in describe_words(one)]
        found = iter(self._model.predict(self._bag.transform(described)).tolist())
        return [[next(found) for _ in one] for one in sentences]


def describe_words(words: Sequence[str]) -> Iterator[dict[str, str | bool]]:
    """Yield the features of each word."""
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
