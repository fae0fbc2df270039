"""Baselines without an encoder: a model that loses to a bag of words is not worth deploying."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.extras import import_extra
from maskwright.model.config import ProblemType
from maskwright.tokenizer.words import has_long_words

_NEEDED_BY = "a baseline"
Texts = Sequence[Sequence[str]]  # one or two texts per example


def build_linear(problem: ProblemType, strength: float = 10.0) -> Any:
    """Return an unfitted linear model of scikit-learn for the targets of a problem.

    `strength` is the inverse of the regularization.
    """
    linear: Any = import_extra("sklearn.linear_model", "finetune", _NEEDED_BY)
    if problem == "regression":
        return linear.Ridge(alpha=10.0 / strength)
    logistic = linear.LogisticRegression(C=strength, max_iter=1000)
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


def fit_bag_of_words(
    problem: ProblemType, texts: Texts, targets: NDArray[Any]
) -> Callable[[Texts], NDArray[Any]]:
    """Return a linear model on TF-IDF features, as a function of texts: words and word bigrams.

    Where words are as long as texts (proteins), the features are the k-mers of 1 to 3 characters.

    For pairs of texts, the words that they share and their cosine are features too: a linear model
    cannot compare two concatenated bags of words. If no word occurs twice, it is constant.
    """
    bag = fit_vectorizer(texts)
    if bag is None:
        return lambda texts: predict_constant(problem, targets, len(texts))
    model = build_linear(problem).fit(count_words(bag, texts), targets)
    return lambda texts: np.asarray(model.predict(count_words(bag, texts)))


def fit_vectorizer(texts: Texts) -> Any:
    """Return a fitted ``TfidfVectorizer``; None if no word occurs twice."""
    extraction: Any = import_extra("sklearn.feature_extraction.text", "finetune", _NEEDED_BY)
    pattern = r"(?u)\b\w+\b"  # scikit-learn's default drops words of one letter
    if has_long_words(text for each in texts for text in each):
        bag = extraction.TfidfVectorizer(
            ngram_range=(1, 3), min_df=2, analyzer="char", lowercase=False
        )
    else:
        bag = extraction.TfidfVectorizer(ngram_range=(1, 2), min_df=2, token_pattern=pattern)
    try:
        return bag.fit([text for each in texts for text in each])
    except ValueError:
        return None


def count_words(bag: Any, texts: Texts) -> Any:
    """Return the sparse features [N, F] of texts, or of pairs, with what these share."""
    sparse: Any = import_extra("scipy.sparse", "finetune", _NEEDED_BY)
    bags = [bag.transform(side) for side in zip(*texts, strict=True)]
    if len(bags) == 2:
        shared = bags[0].multiply(bags[1])
        bags += [shared, sparse.csr_matrix(shared.sum(1))]
    return sparse.hstack(bags).tocsr()


def fit_tagger(
    sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[int]]
) -> Callable[[Sequence[Sequence[str]]], list[list[int]]]:
    """Return logistic regression on each word, its neighbors, its suffix and its capitalization."""
    extraction: Any = import_extra("sklearn.feature_extraction", "finetune", _NEEDED_BY)
    bag, model = extraction.DictVectorizer(), build_linear("single_label_classification")
    known = bag.fit_transform([word for one in sentences for word in describe_words(one)])
    model.fit(known, np.concatenate(tags))

    def predict(sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        described = [word for one in sentences for word in describe_words(one)]
        found = iter(model.predict(bag.transform(described)).tolist())
        return [[next(found) for _ in one] for one in sentences]

    return predict


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
