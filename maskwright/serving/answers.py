"""What a model folder answers, in the shapes of Hugging Face's inference API.

Each answerer takes the questions of many requests at once; a question that cannot be answered has
its error in the place of an answer.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeAlias

from maskwright.console import tell
from maskwright.errors import InputError, ModelFolderError
from maskwright.finetuning.conll import OUTSIDE, Word, find_entities, split_words
from maskwright.finetuning.predict import Predictor
from maskwright.finetuning.task import Answer
from maskwright.inference.fill_mask import FillMask, FillResult, Prediction
from maskwright.interop.folders import read_card
from maskwright.model_folder.card import read_example
from maskwright.model_folder.classifier_folder import is_classifier
from maskwright.model_folder.folder import CARD

TaskName = Literal["fill-mask", "text-classification", "token-classification"]
Strategy = Literal["none", "simple", "first", "average", "max"]
DEFAULT_TOP_K = 5  # as in transformers


@dataclass(frozen=True)
class Question:
    """A text, or two, and how it is to be answered.

    Attributes:
        function: that made probabilities, as the client believes.
        strategy: ``none``: each word by itself, else entities. Words are labelled whole, so that
            there is nothing for the others to choose: they are what ``simple`` is.
        ignored: tags of words, or kinds of entities, that are left out.
    """

    text: str
    second: str | None = None
    top_k: int | None = None
    targets: tuple[str, ...] | None = None
    function: str | None = None
    strategy: Strategy = "none"
    ignored: tuple[str, ...] = (OUTSIDE,)


class FillAnswerer:
    """Words for [MASK]: a list of candidates, and of several masks a list for each."""

    task: TaskName = "fill-mask"

    def __init__(self, fill: FillMask, example: Sequence[str] = ()) -> None:
        self.fill, self.example = fill, example

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

    def __init__(self, predict: Predictor, example: Sequence[str] = ()) -> None:
        self.predict, self.example = predict, example

    @property
    def function(self) -> str:
        """What makes probabilities of the model's numbers, as transformers calls it."""
        known = {"regression": "none", "multi_label_classification": "sigmoid"}
        return known.get(self.predict.loaded.problem, "softmax")

    def __call__(self, questions: Sequence[Question]) -> list[Any]:
        answers: list[Any] = [None] * len(questions)
        for is_pair in (False, True):
            numbers = [n for n, q in enumerate(questions) if (q.second is not None) == is_pair]
            asked = [
                (questions[n].text, questions[n].second or "") if is_pair else questions[n].text
                for n in numbers
            ]
            try:
                found: Sequence[Answer | InputError] = self.predict(asked) if asked else []
            except InputError as error:  # the model was trained on pairs, or was not
                found = [error] * len(numbers)
            for number, answer in zip(numbers, found, strict=True):
                answers[number] = self._shape(answer, questions[number].top_k)
        return answers

    def _shape(self, answer: Answer | InputError, top_k: int | None) -> Any:
        if isinstance(answer, InputError):
            return answer
        if isinstance(answer.label, float):  # a number
            return [{"label": self.predict.loaded.labels[0], "score": answer.label}]
        ranked = sorted(answer.probabilities.items(), key=lambda pair: -pair[1])
        return [{"label": label, "score": score} for label, score in ranked[:top_k]]


class TagAnswerer:
    """Tagged words, or entities of them, with their place in the text.

    Words without any token have no tag, and are left out.
    """

    task: TaskName = "token-classification"

    def __init__(self, predict: Predictor, example: Sequence[str] = ()) -> None:
        self.predict, self.example = predict, example

    def __call__(self, questions: Sequence[Question]) -> list[Any]:
        words = [split_words(question.text) for question in questions]
        tagged = self.predict.tag([[word.text for word in each] for each in words])
        return [
            (_show_words if question.strategy == "none" else _show_entities)(
                question, each, answers
            )
            for question, each, answers in zip(questions, words, tagged, strict=True)
        ]


def _show_words(
    question: Question, words: Sequence[Word], answers: Sequence[Answer]
) -> list[dict[str, Any]]:
    """Each word by itself."""
    return [
        {
            "entity": answer.label,
            "score": answer.score,
            "index": number,
            "word": word.text,
            "start": word.start,
            "end": word.end,
        }
        for number, (word, answer) in enumerate(zip(words, answers, strict=True))
        if answer.score is not None and answer.label not in question.ignored
    ]


def _show_entities(
    question: Question, words: Sequence[Word], answers: Sequence[Answer]
) -> list[dict[str, Any]]:
    """The words of an entity together, with the mean of their scores."""
    found: list[dict[str, Any]] = []
    tags = [OUTSIDE if answer.score is None else str(answer.label) for answer in answers]
    for kind, begin, end in find_entities(tags):
        if kind in question.ignored:
            continue
        start, stop = words[begin].start, words[end - 1].end
        found.append(
            {
                "entity_group": kind,
                "score": fmean(answer.score or 0.0 for answer in answers[begin:end]),
                "word": question.text[start:stop],
                "start": start,
                "end": stop,
            }
        )
    return found


# What a folder is for: takes questions, gives the answer to each, or its InputError; `example` has
# the text or the two texts that its model card shows, if any.
Answerer: TypeAlias = FillAnswerer | LabelAnswerer | TagAnswerer


def open_answerer(folder: Path, device: str | None) -> Answerer:
    """The answerer of a model folder.

    Raises:
        ModelFolderError: it is none.
    """
    example = _read_card_example(folder)
    if not is_classifier(folder):
        return FillAnswerer(FillMask(folder, device), example)
    predict = Predictor(folder, device or "auto")
    return (TagAnswerer if predict.labels_tokens else LabelAnswerer)(predict, example)


def _read_card_example(folder: Path) -> tuple[str, ...]:
    """Return the example of the model card; none, and a warning, where the card is damaged."""
    try:
        return read_example(read_card(folder) or "")
    except ModelFolderError as error:
        tell(f"warning: no example for the page: {error}")
    except ValueError as error:
        tell(f"warning: no example for the page: {folder / CARD}: {error}")
    return ()
