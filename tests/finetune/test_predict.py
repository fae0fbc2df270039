"""What a model says of words that it never sees, and how much of a text it reads."""

from pathlib import Path

import pytest

from maskwright.artifact.classifier_folder import save_classifier
from maskwright.finetune.config import FinetuneConfig
from maskwright.finetune.network import build_classifier
from maskwright.finetune.predict import Answer, Predictor
from maskwright.serving.answers import Question, TagAnswerer
from tests.finetune.helpers import TOKENIZER, make_loaded

WORDS = ["the", "\u200b", "cat", "\ufe0f"]


def save_tagger(folder: Path, labels: tuple[str, ...]) -> None:
    model = build_classifier(make_loaded().model, FinetuneConfig(), "token", len(labels), seed=0)
    save_classifier(folder, model, TOKENIZER, labels, "single_label_classification")


@pytest.mark.parametrize(
    ("labels", "expected"), [(("B-LOC", "O"), "O"), (("O", "B-LOC"), "O"), (("DET", "NOUN"), "")]
)
def test_words_that_the_tokenizer_drops_have_no_probability(
    labels: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    save_tagger(tmp_path / "model", labels)
    predict = Predictor(tmp_path / "model", "cpu")
    [first, dropped, second, last] = predict.tag([WORDS])[0]
    assert dropped == last == Answer(expected, None, {})
    assert [answer.label for answer in predict.tag([["the", "cat"]])[0]] == [
        first.label,
        second.label,
    ]
    assert sum(first.probabilities.values()) == pytest.approx(1)
    [found] = TagAnswerer(predict)([Question(" ".join(WORDS))])
    assert {one["word"] for one in found} <= {"the", "cat"}
    assert len(found) == sum(answer.label != "O" for answer in (first, second))
