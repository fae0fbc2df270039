"""What a model folder answers, in the shapes of Hugging Face's inference API.

Each answerer takes the questions of many requests at once; a question that cannot be answered has
its error in the place of an answer.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from maskwright.artifact.classifier_folder import is_classifier
from maskwright.errors import InputError
from maskwright.finetune.predict import Answer, Predictor
from maskwright.finetune.spans import OUTSIDE
from maskwright.inference.fill_mask import FillMask, FillResult, Prediction

TaskName = Literal["fill-mask", "text-classification", "token-classification"]
DEFAULT_TOP_K = 5  # as in transformers


@dataclass(frozen=True)
class Question:
    """A text, or two, and how it is to be answered."""

    text: str
    second: str | None = None
    top_k: int | None = None
    targets: tuple[str, ...] | None = None


class FillAnswerer:
    """Words for [MASK]: a list of candidates, and of several masks a list for each."""

    task: TaskName = "fill-mask"

    def __init__(self, fill: FillMask) -> None:
        self.fill = fill

    def __call__(self, questions: Sequence[Question]) -> list[Any]:
        answers: list[Any] = [None] * len(questions)
        groups: dict[tuple[tuple[str, ...] | None, int], list[int]] = defaultdict(list)
        for number, question in enumerate(questions):
            groups[question.targets, self._count(question)].append(number)
        for (targets, top_k), numbers in groups.items():
            texts = [questions[number].text for number in numbers]
            try:
                found = self.fill.attempt(texts, top_k, targets)
            except InputError as error:  # of the targets
                found = [error] * len(numbers)
            for number, result in zip(numbers, found, strict=True):
                answers[number] = self._shape(result, questions[number])
        return answers

    def _count(self, question: Question) -> int:
        return question.top_k or DEFAULT_TOP_K

    def _shape(self, result: FillResult | InputError, question: Question) -> Any:
        if isinstance(result, InputError):
            return result
        top_k = self._count(question)
        ids: list[int] = self.fill.tokenizer.encode_prompt(question.text).ids.tolist()
        places = [n for n, token in enumerate(ids) if token == self.fill.tokenizer.mask_id]
        shaped = [
            [self._describe(one, ids, place, len(places) == 1) for one in found[:top_k]]
            for place, found in zip(places, result.masks, strict=True)
        ]
        return shaped[0] if len(shaped) == 1 else shaped

    def _describe(
        self, found: Prediction, ids: list[int], place: int, is_only: bool
    ) -> dict[str, Any]:
        """A candidate; its sentence as transformers spells it, with other masks in it."""
        filled = [*ids[:place], found.token_id, *ids[place + 1 :]]
        filled = filled if is_only else self.fill.wrap(filled)
        backend = self.fill.tokenizer.backend
        return {
            "score": found.score,
            "token": found.token_id,
            "token_str": found.token,
            "sequence": backend.decode(filled, skip_special_tokens=is_only),
        }


class LabelAnswerer:
    """Labels of a text or a pair, the likeliest first."""

    task: TaskName = "text-classification"

    def __init__(self, predict: Predictor) -> None:
        self.predict = predict

    def __call__(self, questions: Sequence[Question]) -> list[Any]:
        answers: list[Any] = [None] * len(questions)
        for is_pair in (False, True):
            numbers = [n for n, q in enumerate(questions) if (q.second is not None) == is_pair]
            asked = [
                (questions[n].text, questions[n].second or "") if is_pair else questions[n].text
                for n in numbers
            ]
            for number, answer in zip(numbers, self.predict(asked) if asked else [], strict=True):
                answers[number] = self._shape(answer, questions[number].top_k)
        return answers

    def _shape(self, answer: Answer, top_k: int | None) -> list[dict[str, Any]]:
        if isinstance(answer.label, float):  # a number
            return [{"label": self.predict.loaded.labels[0], "score": answer.label}]
        ranked = sorted(answer.probabilities.items(), key=lambda pair: -pair[1])
        return [{"label": label, "score": score} for label, score in ranked[:top_k]]


class TagAnswerer:
    """Tagged words that are no part of ``O``, with their place in the text.

    Words without any token have no tag, and are left out as well.
    """

    task: TaskName = "token-classification"

    def __init__(self, predict: Predictor) -> None:
        self.predict = predict

    def __call__(self, questions: Sequence[Question]) -> list[Any]:
        words = [question.text.split() for question in questions]
        tagged = self.predict.tag(words)
        return [
            self._shape(question.text, split, answers)
            for question, split, answers in zip(questions, words, tagged, strict=True)
        ]

    def _shape(
        self, text: str, words: Sequence[str], answers: Sequence[Answer]
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        start = 0
        for number, (word, answer) in enumerate(zip(words, answers, strict=True)):
            start = text.index(word, start)
            if answer.label not in (OUTSIDE, ""):
                found.append(
                    {
                        "entity": answer.label,
                        "score": answer.score,
                        "index": number,
                        "word": word,
                        "start": start,
                        "end": start + len(word),
                    }
                )
            start += len(word)
        return found


# What a folder is for: takes questions, gives the answer to each, or its InputError.
Answerer: TypeAlias = FillAnswerer | LabelAnswerer | TagAnswerer


def open_answerer(folder: Path, device: str | None) -> Answerer:
    """The answerer of a model folder.

    Raises:
        ModelFolderError: it is none.
    """
    if not is_classifier(folder):
        return FillAnswerer(FillMask(folder, device))
    predict = Predictor(folder, device or "auto")
    return TagAnswerer(predict) if predict.labels_tokens else LabelAnswerer(predict)
